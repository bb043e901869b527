#pragma once
#include <array>
#include <cstdint>

#include "lockstep/device/cuda_launch.hpp"
#include "lockstep/ops/sample_rows.hpp"
#include "ops/dropout/dropout_kernels.hpp"

/// Draws of 16 bits for dropout on a GPU, equal to those on the CPU. Draw e of a sample is in group e / 128 of 16
/// Philox blocks (philox_group.hpp). With i = e mod 128 it is in word i / 32 of block b = (i mod 32) / 4 + 8 (i mod 4 /
/// 2), in the lower half for even i. So blocks b and b + 8 hold the draws 4 b .. 4 b + 3 and those 32, 64 and 96 later.
namespace lockstep::gpu {

inline constexpr std::int64_t kGroupDraws = 2 * ops::cpu::kGroupWords;

/// words[i] by comparisons: registers cannot be indexed at run time.
__device__ inline std::uint32_t word_of(const std::array<std::uint32_t, 4>& words, int i) {
  return i == 0 ? words[0] : i == 1 ? words[1] : i == 2 ? words[2] : words[3];
}

/// The draws `quad` .. `quad` + 3 of a group and those 32, 64 and 96 later: two blocks. quad is a multiple of 4 below
/// 32.
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

/// The draws i, i + 32, i + 64 and i + 96 of a group, i < 32: one block.
class LaneDraws {
 public:
  LaneDraws() = default;
  __device__ LaneDraws(const Philox& philox, std::uint64_t group, int i)
      : words_(philox.block(ops::cpu::kGroupBlocks * group + i / 4 + 8 * (i % 4 / 2))), shift_(16 * (i % 2)) {}
  /// Draw 32 word + i.
  __device__ std::uint32_t at(int word) const { return (word_of(words_, word) >> shift_) & 0xffffu; }

 private:
  std::array<std::uint32_t, 4> words_;
  int shift_;
};

/// The dropout factor of a value with this draw: 0 or scale.
template <class T>
struct Drop {
  std::uint32_t threshold;
  T scale;
  explicit Drop(const ops::cpu::DropRate& rate)
      : threshold(static_cast<std::uint32_t>(rate.threshold)), scale(static_cast<T>(rate.scale)) {}
  __device__ T operator()(T x, std::uint32_t draw) const { return draw < threshold ? T{0} : x * scale; }
};

}  // namespace lockstep::gpu
