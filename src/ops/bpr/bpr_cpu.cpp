#include "bpr_kernels.hpp"
#include "ops/common/f64_sums.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

template <class T>
PairSums sums(std::int64_t n, const T* user, const T* liked, const T* other) {
  Partials margin{}, squares{};
  std::int64_t c = 0;
  for (; c + kPartials <= n; c += kPartials) {
    const Partials u = partials(user + c), i = partials(liked + c), j = partials(other + c);
    margin += u * (j - i);
    squares += u * u + i * i + j * j;
  }
  for (; c < n; ++c) {
    const auto u = static_cast<double>(user[c]), i = static_cast<double>(liked[c]), j = static_cast<double>(other[c]);
    margin[0] += u * (j - i);
    squares[0] += u * u + i * i + j * j;
  }
  return {total(margin), total(squares)};
}

template <class T>
void scale(std::int64_t n, T* __restrict__ to, const T* __restrict__ row, T factor) {
  for (std::int64_t c = 0; c < n; ++c) to[c] = factor * row[c];
}
template <class T>
void add(std::int64_t n, T* __restrict__ to, const T* __restrict__ row, T factor) {
  for (std::int64_t c = 0; c < n; ++c) to[c] += factor * row[c];
}
template <class T>
void add_difference(std::int64_t n, T* __restrict__ to, const T* __restrict__ a, const T* __restrict__ b, T factor) {
  for (std::int64_t c = 0; c < n; ++c) to[c] += factor * (a[c] - b[c]);
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(BprKernels, bpr_kernels, sums<T>, scale<T>, add<T>, add_difference<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
