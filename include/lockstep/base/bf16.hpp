#pragma once
#include <bit>
#include <cstdint>

namespace lockstep {

/// bfloat16 as storage: the upper half of a binary32. Arithmetic happens in f32.
struct bf16 {
  std::uint16_t bits = 0;
};

/// Converts f32 to bfloat16 bits (8 bits of precision, the range of f32). Rounds to nearest, ties to even; NaN stays
/// NaN.
constexpr std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40u;
  return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}
constexpr float from_bf16(std::uint16_t value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16); }

}  // namespace lockstep
