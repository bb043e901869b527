#pragma once
#include <cstdint>

#include "lockstep/base/philox.hpp"

namespace lockstep::ops::cpu {

/// The order of Philox words in kernels: groups of 16 blocks, 64 words, that suit every vector width. Word w (0..3) of
/// block b (0..15) of a group is at index 16 w + 2 (b mod 8) + b / 8. Read as 256 bytes or 128 16-bit numbers, the
/// words are little-endian.
inline constexpr int kGroupBlocks = 16;
inline constexpr int kGroupWords = 64;

struct PhiloxKey {
  std::uint32_t key[2] = {};
  std::uint32_t counter[4] = {};
  PhiloxKey() = default;
  explicit PhiloxKey(const Philox& p)
      : key{p.key()[0], p.key()[1]}, counter{p.counter()[0], p.counter()[1], p.counter()[2], p.counter()[3]} {}
};

}  // namespace lockstep::ops::cpu
