#pragma once
// Philox4x32-10 on vectors: many blocks of one (seed, step, site, sample) at once.
#include "philox_group.hpp"
#include "simd.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {

using U64 = Vec<std::uint64_t>;

/// The product of the lower 32 bits of each lane.
LOCKSTEP_INLINE U64 multiply_low(U64 a, U64 b) {
#if defined(LOCKSTEP_ISA_avx512)
  return (U64)_mm512_maskz_mul_epu32(0xff, (__m512i)a, (__m512i)b);  // GCC 12 warns about the plain form
#elif defined(LOCKSTEP_ISA_avx2)
  return (U64)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
  return (U64)__builtin_ia32_pmuludq128((Vec<std::int32_t>)a, (Vec<std::int32_t>)b);
#elif defined(__aarch64__)
  return (U64)vmull_u32(vmovn_u64((uint64x2_t)a), vmovn_u64((uint64x2_t)b));
#else
  return (a & 0xffffffffull) * (b & 0xffffffffull);
#endif
}

/// The 64 words of group `group` (see philox_group.hpp). out has kGroupWords elements.
LOCKSTEP_INLINE void philox_group(const PhiloxKey& key, std::uint64_t group, std::uint32_t* out) {
  constexpr int kPer = kVectorBytes / 8, kHalf = 8 / kPer, kVectors = 2 * kHalf;
  const std::uint64_t first = group * kGroupBlocks;
  U64 c[4][kVectors];
  U64 lane;
  for (int i = 0; i < kPer; ++i) lane[i] = static_cast<std::uint64_t>(i);
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) {
    c[0][v] = lane + (first + static_cast<std::uint64_t>(v * kPer));
    c[1][v] = U64{} + key.counter[1];
    c[2][v] = U64{} + key.counter[2];
    c[3][v] = U64{} + key.counter[3];
  }
  std::uint32_t k0 = key.key[0] ^ static_cast<std::uint32_t>(first >> 32), k1 = key.key[1];
  const U64 m0 = U64{} + 0xD2511F53ull, m1 = U64{} + 0xCD9E8D57ull;
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const U64 key0 = U64{} + k0, key1 = U64{} + k1;
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      // The upper halves of the lanes hold garbage that no product reads.
      const U64 p0 = multiply_low(c[0][v], m0), p1 = multiply_low(c[2][v], m1);
      c[0][v] = (p1 >> 32) ^ c[1][v] ^ key0;
      c[1][v] = p1;
      c[2][v] = (p0 >> 32) ^ c[3][v] ^ key1;
      c[3][v] = p0;
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
#pragma GCC unroll 4
  for (int w = 0; w < 4; ++w)
#pragma GCC unroll 8
    for (int v = 0; v < kHalf; ++v)
      store(reinterpret_cast<std::uint64_t*>(out + 16 * w) + v * kPer,
            (c[w][v] & 0xffffffffull) | (c[w][v + kHalf] << 32));
}

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
