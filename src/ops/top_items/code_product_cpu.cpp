#include "ops/common/simd.hpp"
#include "top_items_kernels.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

#if defined(LOCKSTEP_ISA_avx512) || defined(LOCKSTEP_ISA_avx2)
using Codes32 = Vec<std::int32_t>;
constexpr std::int64_t kPanelVectors = 2, kPanel = kPanelVectors * kLanes<float>;

/// sum + the products of four unsigned by four signed bytes in each lane.
template <bool kVnni>
LOCKSTEP_INLINE Codes32 add_products(Codes32 sum, Codes32 unsigned_bytes, Codes32 signed_bytes) {
#if defined(LOCKSTEP_ISA_avx512)
  if constexpr (kVnni) {
    // The assembler's instruction, because this file is compiled for processors without it, too.
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(unsigned_bytes), "v"(signed_bytes));
    return sum;
  }
  const __m512i pairs = _mm512_maddubs_epi16((__m512i)unsigned_bytes, (__m512i)signed_bytes);
  return sum + (Codes32)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
#else
  const __m256i pairs = _mm256_maddubs_epi16((__m256i)unsigned_bytes, (__m256i)signed_bytes);
  return sum + (Codes32)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#endif
}

/// Each user of a tile has a vector of sums for each vector of a panel.
constexpr int kTile = kVectorRegisters == 32 ? 12 : 5;

template <bool kVnni>
void product(const CodeProduct& p) {
  for (std::int64_t at = 0; at < p.count; at += kPanel) {
    const std::uint8_t* panel = p.item + (p.first + at) * p.groups * 4;
    for (std::int64_t u = 0; u < p.users; u += kTile) {
      const std::int64_t users = p.users - u < kTile ? p.users - u : kTile;
      Codes32 sum[kTile][kPanelVectors];
#pragma GCC unroll 16
      for (int r = 0; r < kTile; ++r)
        for (int v = 0; v < kPanelVectors; ++v) sum[r][v] = Codes32{};
      const std::int32_t* user = p.user + u * p.groups;
      const auto* item = reinterpret_cast<const std::int32_t*>(panel);
      for (std::int64_t g = 0; g < p.groups; ++g, item += kPanel, user += kTile) {
        const Codes32 a = load(item), b = load(item + kLanes<float>);
#pragma GCC unroll 16
        for (int r = 0; r < kTile; ++r) {
          const Codes32 codes = splat(user[r]);
          sum[r][0] = add_products<kVnni>(sum[r][0], a, codes);
          sum[r][1] = add_products<kVnni>(sum[r][1], b, codes);
        }
      }
#pragma GCC unroll 16
      for (int r = 0; r < kTile; ++r) {
        if (r >= users) break;
        const Vec<float> scale = splat(p.scale[u + r]), codes = splat(p.codes[u + r]), rest = splat(p.rest[u + r]);
        float* to = p.scores + (u + r) * p.count + at;
#pragma GCC unroll 2
        for (int v = 0; v < kPanelVectors; ++v) {
          const std::int64_t i = p.first + at + v * kLanes<float>;
          const Vec<float> dot = __builtin_convertvector(sum[r][v] + splat(p.begin[u + r]), Vec<float>);
          const Vec<float> error = fma(codes, load(p.item_rest + i), rest * load(p.item_part + i));
          store(to + v * kLanes<float>, fma(dot, scale * load(p.item_scale + i), load(p.bias + i)) + error);
        }
      }
    }
  }
}
#endif

}  // namespace

const CodeKernels& code_kernels() {
#if defined(LOCKSTEP_ISA_avx512)
  // Without VNNI pairs of products are added in 16 bits: 2 x 127 x 127 fits, 2 x 255 x 127 does not.
  static constexpr CodeKernels kVnni = {127, 128, kPanel, kTile, product<true>},
                               kPairs = {63, 64, kPanel, kTile, product<false>};
  static const CodeKernels& chosen = __builtin_cpu_supports("avx512vnni") ? kVnni : kPairs;
  return chosen;
#elif defined(LOCKSTEP_ISA_avx2)
  static constexpr CodeKernels kPairs = {63, 64, kPanel, kTile, product<false>};
  return kPairs;
#else
  static constexpr CodeKernels kNone = {0, 0, 1, 1, nullptr};
  return kNone;
#endif
}

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
