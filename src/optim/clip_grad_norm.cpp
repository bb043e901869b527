#include <algorithm>
#include <cmath>
#include <iterator>

#include "lockstep/base/profile.hpp"
#include "lockstep/device/has_cuda.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "optim/cuda_kernels.hpp"

namespace lockstep {

namespace {
template <class T>
bool is_zero(std::int64_t n, const T* x) {
  return std::all_of(x, x + n, [](T value) { return value == 0; });
}

/// Sums of squares on a GPU. The GPU computes partial sums and the host adds them in a fixed order. The partial sums
/// lie in memory of the thread, so a thread may use one object at a time.
class GpuSums {
 public:
  explicit GpuSums(Device device) : stream_(device) {}
  /// Starts the sum over n elements. Requires reserve().
  template <class T>
  void add(std::int64_t n, const T* x) {
    if constexpr (kHasCuda) optim_kernels::cuda::sum_squares(stream_, sums() + used_, n, x);
    used_ += count(n);
  }
  static std::int64_t count(std::int64_t n) {
    if constexpr (kHasCuda) return optim_kernels::cuda::partial_sums(n);
    return n;
  }
  /// Reserves memory for `count` partial sums. The thread keeps the memory for later calls.
  void reserve(std::int64_t count) {
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(double);
    if (memory().size_bytes() < bytes) memory() = Buffer::pinned(2 * bytes);
  }
  /// Returns the next sum, which is over n elements. The first call waits for the GPU.
  double take(std::int64_t n) {
    if (taken_ == 0) stream_.synchronize();
    const std::int64_t end = taken_ + count(n);
    double sum = 0;
    for (; taken_ < end; ++taken_) sum += sums()[taken_];
    return sum;
  }
  const Stream& stream() const { return stream_; }

 private:
  static Buffer& memory() {
    thread_local Buffer kept;
    return kept;
  }
  double* sums() const { return reinterpret_cast<double*>(memory().data()); }
  Stream stream_;
  std::int64_t used_ = 0, taken_ = 0;
};

template <class T>
double penalty_on_gpu(const std::vector<const Param*>& penalised, const Tensor& gradient, double weight, bool lazy) {
  GpuSums sums(gradient.device());
  std::int64_t count = 0;
  for (const Param* p : penalised) count += GpuSums::count(p->shape.size());
  sums.reserve(count);
  for (const Param* p : penalised) {
    const T* value = p->value.data<T>();
    sums.add(p->shape.size(), value);
    if constexpr (kHasCuda) {
      optim_kernels::cuda::add_scaled(sums.stream(), gradient.data<T>() + p->offset, value, 2 * p->l2 * weight,
                                      p->shape.rows(), p->shape.columns(), lazy && p->row_sparse);
    }
  }
  double penalty = 0;
  for (const Param* p : penalised) penalty += p->l2 * sums.take(p->shape.size());
  return penalty;
}
}  // namespace

GradientNorm::GradientNorm(const FlatGradient& gradient, const std::vector<FlatRange>& ranges)
    : gradient_(gradient), ranges_(ranges) {
  if (!gradient.device().is_cuda()) return;
  GpuSums sums(gradient.device());
  std::int64_t count = 0;
  for (const FlatRange& range : ranges) count += GpuSums::count(range.count());
  sums.reserve(count);
  visit_float(gradient.dtype(), [&]<class T>() {
    for (const FlatRange& range : ranges) sums.add(range.count(), gradient.data<T>() + range.begin);
  });
}

double GradientNorm::value() {
  const profile::Span span("gradient norm", profile::Kind::phase);
  if (gradient_.device().is_cuda()) {
    GpuSums sums(gradient_.device());  // the sums that the constructor started
    double sum = 0;
    for (const FlatRange& range : ranges_) sum += sums.take(range.count());
    return std::sqrt(sum);
  }
  double sum = 0;
  for (const double chunk : chunk_squares(gradient_, ranges_)) sum += chunk;
  return std::sqrt(sum);
}

namespace {
/// The sum of squares of one chunk. The sum has 16 lanes, and element i is added to lane i % 16, so whole blocks of 16
/// zeros may be skipped: the other blocks are packed.
template <class T>
double chunk_square(const FlatGradient& gradient, FlatRange chunk) {
  constexpr std::int64_t kBlock = 16;
  const T* const values = gradient.data<T>();
  thread_local std::vector<T> packed;
  packed.clear();
  std::int64_t at = chunk.begin;  // elements before this one are packed or skipped
  bool whole = false;
  gradient.for_each_nonzero(chunk, [&](std::int64_t begin, std::int64_t end) {
    whole = begin == chunk.begin && end == chunk.end;
    if (whole) return;
    begin = std::max(at, chunk.begin + (begin - chunk.begin) / kBlock * kBlock);
    end = std::min(chunk.end, chunk.begin + (end - chunk.begin + kBlock - 1) / kBlock * kBlock);
    if (begin < end) packed.insert(packed.end(), values + begin, values + end);
    at = std::max(at, end);
  });
  const auto sum_squares = optim_kernels::active_sweep<T>().sum_squares;
  return whole ? sum_squares(chunk.count(), values + chunk.begin) : sum_squares(std::ssize(packed), packed.data());
}
}  // namespace

std::vector<double> chunk_squares(const FlatGradient& gradient, const std::vector<FlatRange>& ranges) {
  // Chunks of fixed length: the result does not depend on the number of threads.
  constexpr std::int64_t kChunk = std::int64_t{1} << 16;
  std::vector<FlatRange> chunks;
  for (const FlatRange& range : ranges)
    for (std::int64_t i = range.begin; i < range.end; i += kChunk)
      chunks.push_back({i, std::min(i + kChunk, range.end)});
  std::vector<double> sums(chunks.size());
  visit_float(gradient.dtype(), [&]<class T>() {
#pragma omp parallel for schedule(static) if (chunks.size() >= 4)
    for (std::size_t i = 0; i < chunks.size(); ++i) sums[i] = chunk_square<T>(gradient, chunks[i]);
  });
  return sums;
}

double gradient_norm(const FlatGradient& gradient, const std::vector<FlatRange>& ranges) {
  return GradientNorm(gradient, ranges).value();
}

double add_penalty(const ParamStore& params, const FlatGradient& gradient, double weight, bool lazy, FlatRange within) {
  std::vector<const Param*> penalised;
  for (const Param& p : params.all())
    if (p.l2 != 0 && p.trainable) penalised.push_back(&p);
  if (penalised.empty()) return 0;
  return visit_float(gradient.dtype(), [&]<class T>() {
    if (gradient.device().is_cuda()) return penalty_on_gpu<T>(penalised, gradient, weight, lazy);
    double penalty = 0;
    const T* const value = params.values().data<T>();
    T* const slope = gradient.data<T>();
    for (const Param* p : penalised) {
      penalty += p->l2 * optim_kernels::active_sweep<T>().sum_squares(p->shape.size(), p->value.data<T>());
      const auto factor = static_cast<T>(2 * p->l2 * weight);
      const FlatRange all = {p->offset, p->offset + p->shape.size()};
      const auto add = [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = std::max(begin, within.begin); i < std::min(end, within.end); ++i)
          slope[i] += factor * value[i];
      };
      if (!lazy || !p->row_sparse) {
        add(all.begin, all.end);
        if (gradient.nonzero != nullptr) gradient.nonzero->add_all(all);
        continue;
      }
      const std::int64_t row = p->shape.columns();
      gradient.for_each_nonzero(all, [&](std::int64_t begin, std::int64_t end) {
        for (; begin < end; begin += row)
          if (!is_zero(row, slope + begin)) add(begin, begin + row);
      });
    }
    return penalty;
  });
}

double clip_scale(double norm, double max_norm) { return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0; }

std::string element_text(const ParamStore& params, std::int64_t at, double value) {
  for (const Param& p : params.all())
    if (at >= p.offset && at < p.offset + p.shape.size()) return join(p.name, "[", at - p.offset, "] = ", value);
  return join("the gap at ", at, " = ", value);
}

std::string first_non_finite(const ParamStore& params, const Tensor& flat) {
  const HostView host(flat);
  return visit_float(flat.dtype(), [&]<class T>() -> std::string {
    for (const Param& p : params.all()) {
      const T* values = host->data<T>() + p.offset;
      for (std::int64_t i = 0; i < p.shape.size(); ++i) {
        if (!std::isfinite(values[i])) return element_text(params, p.offset + i, static_cast<double>(values[i]));
      }
    }
    return "";
  });
}

}  // namespace lockstep
