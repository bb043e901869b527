#pragma once
// Dropout of consecutive elements, for the dropout kernel and for kernels that fuse dropout.
#include "dropout_kernels.hpp"
#include "ops/common/philox_simd.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {

LOCKSTEP_INLINE Vec<float> keep(Vec<float> x, const std::uint16_t* draws, std::int32_t threshold) {
#if defined(LOCKSTEP_ISA_avx512)
  // GCC 12 makes five instructions of the conversion, and warns about the intrinsic without a mask.
  const __m512i u = _mm512_maskz_cvtepu16_epi32(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(draws)));
  return (Vec<float>)_mm512_maskz_mov_ps(_mm512_cmpge_epi32_mask(u, _mm512_set1_epi32(threshold)), (__m512)x);
#else
  typedef std::uint16_t Draws __attribute__((vector_size(kVectorBytes / 2), aligned(2), may_alias));
  const Vec<std::int32_t> u = __builtin_convertvector(*reinterpret_cast<const Draws*>(draws), Vec<std::int32_t>);
  return (Vec<float>)((Vec<std::int32_t>)x & (u >= threshold));
#endif
}
LOCKSTEP_INLINE Vec<double> keep(Vec<double> x, const std::uint16_t* draws, std::int32_t threshold) {
  typedef std::uint16_t Draws __attribute__((vector_size(kVectorBytes / 4), aligned(2), may_alias));
  const Vec<std::int64_t> u = __builtin_convertvector(*reinterpret_cast<const Draws*>(draws), Vec<std::int64_t>);
  return (Vec<double>)((Vec<std::int64_t>)x & (u >= std::int64_t{threshold}));
}

/// y_i = to_i + x_i keep_i scale for i < n; a null `to` is 0. y may be x or `to`. Reads `draws` up to the next whole
/// vector.
template <class T>
LOCKSTEP_INLINE void drop_by(const std::uint16_t* draws, std::int64_t n, T* y, const T* to, const T* x,
                             const DropRate& rate) {
  constexpr std::int64_t kL = kLanes<T>;
  const Vec<T> scale = splat(static_cast<T>(rate.scale));
  for (std::int64_t i = 0; i < n; i += kL) {
    if (n - i >= kL) {
      const Vec<T> kept = keep(load(x + i) * scale, draws + i, rate.threshold);
      store(y + i, to ? load(to + i) + kept : kept);
    } else {
      const Lanes<T> lanes(n - i);
      const Vec<T> kept = keep(load(x + i, lanes) * scale, draws + i, rate.threshold);
      store(y + i, to ? load(to + i, lanes) + kept : kept, lanes);
    }
  }
}

/// One group's 128 draws of 16 bits.
class GroupDraws {
 public:
  LOCKSTEP_INLINE void draw(const PhiloxKey& key, std::uint64_t group) {
    philox_group(key, group, words_);
    asm volatile("" : : : "memory");  // the words are read as 16-bit numbers
  }
  const std::uint16_t* draws() const { return reinterpret_cast<const std::uint16_t*>(words_); }

 private:
  alignas(64) std::uint32_t words_[kGroupWords];
};

/// y_i = to_i + x_i keep_i scale for i < n; a null `to` is 0. Element 0 uses the first draw of group `group`. y may be
/// x or `to`. The same elements of `also` are dropped, unless it is null.
template <class T>
LOCKSTEP_INLINE void dropout_row(std::int64_t n, T* y, const T* to, const T* x, const PhiloxKey& key,
                                 std::uint64_t group, const DropRate& rate, T* also = nullptr) {
  constexpr std::int64_t kDraws = 2 * kGroupWords;
  GroupDraws drawn;
  for (std::int64_t first = 0; first < n; first += kDraws, ++group) {
    drawn.draw(key, group);
    const std::int64_t count = n - first < kDraws ? n - first : kDraws;
    drop_by(drawn.draws(), count, y + first, to ? to + first : nullptr, x + first, rate);
    if (also) drop_by<T>(drawn.draws(), count, also + first, nullptr, also + first, rate);
  }
}

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
