#pragma once
#include <bit>
#include <cstdint>

namespace lockstep {

/// binary16 as storage. Arithmetic happens in f32.
struct f16 {
  std::uint16_t bits = 0;
};

/// Converts f32 to IEEE binary16 bits (11 bits of precision, largest finite value 65504). Rounds to nearest, ties to
/// even; larger values become infinite; NaN stays NaN.
inline std::uint16_t to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
  std::uint32_t half;
  if (size > 0x7f800000u) {
    half = 0x7e00u;
  } else if (size >= 0x477ff000u) {  // 65520, halfway between 65504 and the next multiple of 32
    half = 0x7c00u;
  } else if (size < 0x38800000u) {  // below 2^-14, f16 values are multiples of 2^-24, like f32 values in [0.5, 1)
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5f) - 0x3f000000u;
  } else {
    half = (size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | half);
}
inline float from_f16(std::uint16_t value) {
  const std::uint32_t sign = (value & 0x8000u) << 16, exponent = value >> 10 & 31u, digits = value & 0x3ffu;
  const float size = exponent == 0    ? static_cast<float>(digits) * 0x1p-24f
                     : exponent == 31 ? std::bit_cast<float>(0x7f800000u | digits << 13)
                                      : std::bit_cast<float>((exponent + 112u) << 23 | digits << 13);
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(size) | sign);
}

}  // namespace lockstep
