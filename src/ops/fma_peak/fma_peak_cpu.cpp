#include "fma_peak_kernels.hpp"
#include "ops/common/simd.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {

template <class T>
double fma_rounds(std::int64_t rounds, double* sink) {
  // Enough chains to cover latency times throughput (4 to 5 cycles, 2 per cycle), few enough for the registers.
  constexpr int kChains = 12;
  Vec<T> sum[kChains];
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) sum[i] = splat(static_cast<T>(i));
  Vec<T> factor = splat(static_cast<T>(0.999)), term = splat(static_cast<T>(0.001));
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 4
    for (int repeat = 0; repeat < 4; ++repeat)
#pragma GCC unroll 16
      for (int i = 0; i < kChains; ++i) sum[i] = fma(sum[i], factor, term);
  }
  Vec<T> total = sum[0];
#pragma GCC unroll 16
  for (int i = 1; i < kChains; ++i) total += sum[i];
  *sink = static_cast<double>(total[0]);
  return 2.0 * static_cast<double>(rounds) * 4 * kChains * kLanes<T>;
}
LOCKSTEP_EACH_FLOAT(fma_rounds)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
