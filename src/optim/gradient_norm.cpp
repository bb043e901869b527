#include <algorithm>
#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "optim/sweep_kernels.hpp"

namespace lockstep {

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
