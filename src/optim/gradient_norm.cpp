#include <algorithm>
#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/device/has_cuda.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "optim/optim_cuda.hpp"

namespace lockstep {

namespace {
template <class T>
bool is_zero(std::int64_t n, const T* x) {
  return std::all_of(x, x + n, [](T value) { return value == 0; });
}

/// Sums of squares on a GPU, part by part, that the host adds up in their order. One at a time in a thread: their memory is
/// the thread's.
class GpuSums {
 public:
  explicit GpuSums(Device device) : stream_(device) {}
  /// Starts the sum over n elements; the room for its parts must be there.
  template <class T>
  void add(std::int64_t n, const T* x) {
    if constexpr (kHasCuda) optim_kernels::cuda::sum_squares(stream_, parts() + used_, n, x);
    used_ += count(n);
  }
  static std::int64_t count(std::int64_t n) {
    if constexpr (kHasCuda) return optim_kernels::cuda::sum_parts(n);
    return n;
  }
  /// Room for this many parts, in memory of the thread that is kept for the next call.
  void reserve(std::int64_t count) {
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(double);
    if (memory().size_bytes() < bytes) memory() = Buffer::pinned(2 * bytes);
  }
  /// Waits for all of them. The sum of the next n elements' parts.
  double take(std::int64_t n) {
    if (taken_ == 0) stream_.synchronize();
    const std::int64_t end = taken_ + count(n);
    double sum = 0;
    for (; taken_ < end; ++taken_) sum += parts()[taken_];
    return sum;
  }
  const Stream& stream() const { return stream_; }

 private:
  static Buffer& memory() {
    thread_local Buffer kept;
    return kept;
  }
  double* parts() const { return reinterpret_cast<double*>(memory().data()); }
  Stream stream_;
  std::int64_t used_ = 0, taken_ = 0;
};

template <class T>
double penalty_on_gpu(const std::vector<const Param*>& penalised, const Tensor& gradient, double weight, bool lazy) {
  GpuSums sums(gradient.device());
  std::int64_t parts = 0;
  for (const Param* p : penalised) parts += GpuSums::count(p->shape.size());
  sums.reserve(parts);
  for (const Param* p : penalised) {
    const T* value = p->value.data<T>();
    sums.add(p->shape.size(), value);
    if constexpr (kHasCuda) {
      optim_kernels::cuda::add_scaled(sums.stream(), gradient.data<T>() + p->offset, value,
                                      static_cast<T>(2 * p->l2 * weight), p->shape.rows(), p->shape.columns(),
                                      lazy && p->row_sparse);
    }
  }
  double penalty = 0;
  for (const Param* p : penalised) penalty += p->l2 * sums.take(p->shape.size());
  return penalty;
}
}  // namespace

GradientNorm::GradientNorm(const Tensor& gradient, const std::vector<FlatRange>& ranges)
    : gradient_(gradient), ranges_(ranges) {
  if (!gradient.device().is_cuda()) return;
  GpuSums sums(gradient.device());
  std::int64_t parts = 0;
  for (const FlatRange& range : ranges) parts += GpuSums::count(range.count());
  sums.reserve(parts);
  visit_float(gradient.dtype(), [&]<class T>() {
    for (const FlatRange& range : ranges) sums.add(range.count(), gradient.data<T>() + range.begin);
  });
}

double GradientNorm::value() {
  if (gradient_.device().is_cuda()) {
    GpuSums sums(gradient_.device());  // the constructor's: they lie in the thread's memory
    double sum = 0;
    for (const FlatRange& range : ranges_) sum += sums.take(range.count());
    return std::sqrt(sum);
  }
  // Partial sums over fixed pieces, added in order: no thread count in the result.
  constexpr std::int64_t kPiece = std::int64_t{1} << 16;
  return visit_float(gradient_.dtype(), [&]<class T>() {
    const auto sum_squares = optim_kernels::active<T>().sum_squares;
    double sum = 0;
    for (const FlatRange& range : ranges_) {
      const T* x = gradient_.data<T>() + range.begin;
      const std::int64_t pieces = (range.count() + kPiece - 1) / kPiece;
      if (pieces < 4) {
        for (std::int64_t i = 0; i < pieces; ++i) {
          sum += sum_squares(std::min(kPiece, range.count() - i * kPiece), x + i * kPiece);
        }
        continue;
      }
      std::vector<double> parts(static_cast<std::size_t>(pieces));
#pragma omp parallel for schedule(static)
      for (std::int64_t i = 0; i < pieces; ++i) {
        parts[static_cast<std::size_t>(i)] = sum_squares(std::min(kPiece, range.count() - i * kPiece), x + i * kPiece);
      }
      for (const double part : parts) sum += part;
    }
    return std::sqrt(sum);
  });
}

double gradient_norm(const Tensor& gradient, const std::vector<FlatRange>& ranges) {
  return GradientNorm(gradient, ranges).value();
}

double add_penalty(const ParamStore& params, const Tensor& gradient, double weight, bool lazy) {
  std::vector<const Param*> penalised;
  for (const Param& p : params.all())
    if (p.l2 != 0 && p.trainable) penalised.push_back(&p);
  if (penalised.empty()) return 0;
  return visit_float(gradient.dtype(), [&]<class T>() {
    if (gradient.device().is_cuda()) return penalty_on_gpu<T>(penalised, gradient, weight, lazy);
    double penalty = 0;
    for (const Param* p : penalised) {
      const T* value = p->value.data<T>();
      penalty += p->l2 * optim_kernels::active<T>().sum_squares(p->shape.size(), value);
      T* slope = gradient.data<T>() + p->offset;
      const auto factor = static_cast<T>(2 * p->l2 * weight);
      const std::int64_t row = lazy && p->row_sparse ? p->shape.columns() : p->shape.size();
      for (std::int64_t first = 0; first < p->shape.size(); first += row) {
        if (lazy && p->row_sparse && is_zero(row, slope + first)) continue;
        for (std::int64_t i = first; i < first + row; ++i) slope[i] += factor * value[i];
      }
    }
    return penalty;
  });
}

double clip_scale(double norm, double max_norm) { return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0; }

std::string first_non_finite(const ParamStore& params, const Tensor& flat) {
  const HostView host(flat);
  return visit_float(flat.dtype(), [&]<class T>() -> std::string {
    for (const Param& p : params.all()) {
      const T* values = host->data<T>() + p.offset;
      for (std::int64_t i = 0; i < p.shape.size(); ++i) {
        if (!std::isfinite(values[i])) return join(p.name, "[", i, "] = ", values[i]);
      }
    }
    return "";
  });
}

}  // namespace lockstep
