#pragma once
#include <array>
#include <cstdint>

#include "dropout_kernels.hpp"
#include "lockstep/device/cuda_launch.hpp"
#include "lockstep/ops/sample_rows.hpp"

/// Draws of 16 bits for dropout on a GPU, the same as on the CPU. Draw e of a sample stands in group e / 128 of 16 blocks
/// of Philox (philox_group.hpp): with i = e mod 128 it is in word i / 32 of block b = (i mod 32) / 4 + 8 (i mod 4 / 2),
/// its lower half for even i. So blocks b and b + 8 hold the draws 4 b .. 4 b + 3, and those 32, 64 and 96 later.
namespace lockstep::gpu {

inline constexpr std::int64_t kGroupDraws = 2 * ops::cpu::kGroupWords;

/// words[i] by comparisons: a register has no address.
__device__ inline std::uint32_t word_of(const std::array<std::uint32_t, 4>& words, int i) {
  return i == 0 ? words[0] : i == 1 ? words[1] : i == 2 ? words[2] : words[3];
}

/// The draws `quad` .. `quad` + 3, and those 32, 64 and 96 later, of a group: two blocks. quad is a multiple of 4 below 32.
class QuadDraws {
 public:
  __device__ QuadDraws(const Philox& philox, std::uint64_t group, int quad)
      : first_(philox.block(ops::cpu::kGroupBlocks * group + quad / 4)),
        second_(philox.block(ops::cpu::kGroupBlocks * group + quad / 4 + 8)) {}
  /// Draw 32 word + quad + k.
  __device__ std::uint32_t at(int word, int k) const {
    return (word_of(k < 2 ? first_ : second_, word) >> (16 * (k % 2))) & 0xffffu;
  }

 private:
  std::array<std::uint32_t, 4> first_, second_;
};

/// Of one draw in every 32 of a group: place, place + 32, + 64, + 96; place < 32. One block.
class LaneDraws {
 public:
  LaneDraws() = default;
  __device__ LaneDraws(const Philox& philox, std::uint64_t group, int place)
      : words_(philox.block(ops::cpu::kGroupBlocks * group + place / 4 + 8 * (place % 4 / 2))),
        shift_(16 * (place % 2)) {}
  /// Draw 32 word + place.
  __device__ std::uint32_t at(int word) const { return (word_of(words_, word) >> shift_) & 0xffffu; }

 private:
  std::array<std::uint32_t, 4> words_;
  int shift_;
};

/// What dropout does to a value with this draw: nothing of it, or scale times it.
template <class T>
struct Drop {
  std::uint32_t threshold;
  T scale;
  explicit Drop(const ops::cpu::DropRate& rate)
      : threshold(static_cast<std::uint32_t>(rate.threshold)), scale(static_cast<T>(rate.scale)) {}
  __device__ T operator()(T x, std::uint32_t draw) const { return draw < threshold ? T{0} : x * scale; }
};

}  // namespace lockstep::gpu
