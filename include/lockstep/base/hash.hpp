#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// 64-bit XXH3, the checksum of datasets, checkpoints and parameters.
///
/// source   Collet, xxHash specification
std::uint64_t hash64(const void* bytes, std::size_t size_bytes, std::uint64_t seed = 0);
inline std::uint64_t hash64(std::string_view text, std::uint64_t seed = 0) {
  return hash64(text.data(), text.size(), seed);
}
/// Computes hash64() incrementally.
class Hash64 {
 public:
  explicit Hash64(std::uint64_t seed = 0);
  void add(const void* bytes, std::size_t size_bytes);
  std::uint64_t value() const;
  /// The hash so far, for a process that continues with take() in an object of the same seed.
  std::vector<std::byte> state() const;
  void take(std::span<const std::byte> state);

 private:
  std::unique_ptr<void, void (*)(void*)> state_;
};
/// Formats a value as sixteen lower-case hexadecimal digits.
std::string hex64(std::uint64_t value);
/// CRC-32C (Castagnoli), the checksum of TFRecord frames.
std::uint32_t crc32c(const void* bytes, std::size_t size_bytes);

}  // namespace lockstep
