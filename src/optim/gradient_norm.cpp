#include <algorithm>
#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "optim/sweep_kernels.hpp"

namespace lockstep {

namespace {
template <class T>
bool is_zero(std::int64_t n, const T* x) {
  return std::all_of(x, x + n, [](T value) { return value == 0; });
}
}  // namespace

double gradient_norm(const Tensor& gradient, const std::vector<FlatRange>& ranges) {
  // Partial sums over fixed pieces, added in order: no thread count in the result.
  constexpr std::int64_t kPiece = std::int64_t{1} << 16;
  return visit_float(gradient.dtype(), [&]<class T>() {
    const auto sum_squares = optim_kernels::active<T>().sum_squares;
    double sum = 0;
    for (const FlatRange& range : ranges) {
      const T* x = gradient.data<T>() + range.begin;
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

double add_penalty(const ParamStore& params, const Tensor& gradient, double weight, bool lazy) {
  double penalty = 0;
  visit_float(gradient.dtype(), [&]<class T>() {
    for (const Param& p : params.all()) {
      if (p.l2 == 0 || !p.trainable) continue;
      const T* value = p.value.data<T>();
      penalty += p.l2 * optim_kernels::active<T>().sum_squares(p.shape.size(), value);
      T* slope = gradient.data<T>() + p.offset;
      const auto factor = static_cast<T>(2 * p.l2 * weight);
      const std::int64_t row = lazy && p.row_sparse ? p.shape.columns() : p.shape.size();
      for (std::int64_t first = 0; first < p.shape.size(); first += row) {
        if (lazy && p.row_sparse && is_zero(row, slope + first)) continue;
        for (std::int64_t i = first; i < first + row; ++i) slope[i] += factor * value[i];
      }
    }
  });
  return penalty;
}

double clip_scale(double norm, double max_norm) { return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0; }

std::string first_non_finite(const ParamStore& params, const Tensor& flat) {
  return visit_float(flat.dtype(), [&]<class T>() -> std::string {
    for (const Param& p : params.all()) {
      const T* values = flat.data<T>() + p.offset;
      for (std::int64_t i = 0; i < p.shape.size(); ++i) {
        if (!std::isfinite(values[i])) return join(p.name, "[", i, "] = ", values[i]);
      }
    }
    return "";
  });
}

}  // namespace lockstep
