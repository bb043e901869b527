#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// XXH3, 64 bit: checksums of data sets, checkpoints and parameters. source  Collet, xxHash specification.
std::uint64_t hash64(const void* bytes, std::size_t size_bytes, std::uint64_t seed = 0);
inline std::uint64_t hash64(std::string_view text, std::uint64_t seed = 0) { return hash64(text.data(), text.size(), seed); }
/// Sixteen lower-case hexadecimal digits.
std::string hex64(std::uint64_t value);
/// CRC-32C (Castagnoli), as TFRecord frames use it.
std::uint32_t crc32c(const void* bytes, std::size_t size_bytes);

}  // namespace lockstep
