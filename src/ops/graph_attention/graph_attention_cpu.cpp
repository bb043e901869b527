#include "graph_attention_kernels.hpp"
#include "ops/common/simd.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

template <class T>
LOCKSTEP_INLINE Vec<T> products(std::int64_t k, const T* a, const T* b) {
  Vec<T> sum[2] = {};
  std::int64_t c = 0;
  for (; c + 2 * kLanes<T> <= k; c += 2 * kLanes<T>) {
    sum[0] = fma(load(a + c), load(b + c), sum[0]);
    sum[1] = fma(load(a + c + kLanes<T>), load(b + c + kLanes<T>), sum[1]);
  }
  for (; c + kLanes<T> <= k; c += kLanes<T>) sum[0] = fma(load(a + c), load(b + c), sum[0]);
  if (c < k) {
    const Lanes<T> lanes(k - c);
    sum[1] = fma(load(a + c, lanes), load(b + c, lanes), sum[1]);
  }
  return sum[0] + sum[1];
}

/// Takes as many triples at a time as a vector has lanes: one transposition then sums all lanes.
template <class T>
void pair_dots(std::int64_t n, std::int64_t k, T* logits, const std::int64_t* place, const T* heads,
               const std::int32_t* head_slot, const T* tails, const std::int32_t* tail_slot) {
  constexpr int kL = kLanes<T>;
  constexpr std::int64_t kPrefetch = 16;
  for (std::int64_t i = 0; i < n; i += kL) {
    const std::int64_t count = n - i < kL ? n - i : kL;
    Vec<T> sums[kL] = {};
    for (std::int64_t j = 0; j < count; ++j) {
      if (i + j + kPrefetch < n) {
        const char* p = reinterpret_cast<const char*>(tails + tail_slot[i + j + kPrefetch] * k);
        for (std::int64_t b = 0; b < k * static_cast<std::int64_t>(sizeof(T)); b += 64) __builtin_prefetch(p + b);
      }
      sums[j] = products(k, heads + head_slot[i + j] * k, tails + tail_slot[i + j] * k);
    }
    const Vec<T> dots = sum_each<T>(sums);
    for (std::int64_t j = 0; j < count; ++j) logits[place[i + j]] = dots[j];
  }
}

}  // namespace

template <class T>
PairDotsKernel<T> pair_dots_kernel() {
  return pair_dots<T>;
}
LOCKSTEP_EACH_FLOAT(pair_dots_kernel)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
