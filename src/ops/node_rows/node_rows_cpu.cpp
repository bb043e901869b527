#include "node_rows_kernels.hpp"
#include "ops/common/f64_sums.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

constexpr double kLeastNorm = 1e-12;

template <class T>
void normalise(std::int64_t n, T* __restrict__ to, const T* __restrict__ row) {
  const double norm = __builtin_sqrt(dot(n, row, row));
  const T factor = static_cast<T>(1 / (norm > kLeastNorm ? norm : kLeastNorm));
  for (std::int64_t c = 0; c < n; ++c) to[c] = row[c] * factor;
}

template <class T>
void add_gradient(std::int64_t n, T* __restrict__ to, const T* __restrict__ slope, const T* __restrict__ row) {
  const double square = dot(n, row, row), norm = __builtin_sqrt(square);
  const T factor = static_cast<T>(1 / (norm > kLeastNorm ? norm : kLeastNorm));
  const T along = norm > kLeastNorm ? static_cast<T>(dot(n, row, slope) / square) : T{0};
  for (std::int64_t c = 0; c < n; ++c) to[c] += (slope[c] - row[c] * along) * factor;
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(NodeRowKernels, node_row_kernels, normalise<T>, add_gradient<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
