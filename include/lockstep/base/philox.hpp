#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace lockstep {

__extension__ typedef unsigned __int128 uint128;

/// Identifies a use of random numbers ("dropout.ffn", "negatives", "init.fc.weight") by the FNV-1a hash of its name.
struct Site {
  std::uint32_t id;
  constexpr explicit Site(std::uint32_t value) : id(value) {}
  constexpr Site(std::string_view name) : id(2166136261u) {  // NOLINT: implicit on purpose
    for (const char c : name) id = (id ^ static_cast<unsigned char>(c)) * 16777619u;
  }
  constexpr Site(const char* name) : Site(std::string_view(name)) {}  // NOLINT: implicit on purpose
};

/// Random numbers as a pure function: Philox(seed, step, site, sample)(index) depends on its arguments alone, so a
/// replay, a resumed run, any thread and any rank draw the same values.
///
/// The key of Philox4x32-10 is the seed. Its counter is (index / 4, site, sample, step) with sample and step below 2^32
/// and index below 2^34; higher bits of index, sample and step are mixed into the key.
///
/// source  Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3"
class Philox {
 public:
  constexpr Philox(std::uint64_t seed, std::uint64_t step, Site site, std::uint64_t sample = 0)
      : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
        site_(site.id),
        sample_(static_cast<std::uint32_t>(sample)),
        step_(static_cast<std::uint32_t>(step)) {
    key_[0] ^= static_cast<std::uint32_t>(sample >> 32) * 0x85EBCA6Bu;
    key_[1] ^= static_cast<std::uint32_t>(step >> 32) * 0xC2B2AE35u;
  }

  constexpr std::array<std::uint32_t, 2> key() const { return key_; }
  /// The counter of block(0). Its first word is the block index.
  constexpr std::array<std::uint32_t, 4> counter() const { return {0, site_, sample_, step_}; }

  /// Four independent 32-bit words: draws 4*block .. 4*block+3.
  constexpr std::array<std::uint32_t, 4> block(std::uint64_t index) const {
    std::array<std::uint32_t, 4> c = {static_cast<std::uint32_t>(index), site_, sample_, step_};
    std::array<std::uint32_t, 2> k = {key_[0] ^ static_cast<std::uint32_t>(index >> 32), key_[1]};
    for (int round = 0; round < 10; ++round) {
      if (round > 0) {
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
      }
      const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c[0], p1 = std::uint64_t{0xCD9E8D57u} * c[2];
      c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(p1),
           static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(p0)};
    }
    return c;
  }

  /// Uniform over all 32-bit values.
  constexpr std::uint32_t bits(std::uint64_t index) const { return block(index / 4)[index % 4]; }
  /// Uniform over all 64-bit values. Uses the 32-bit draws 2*index and 2*index+1.
  constexpr std::uint64_t bits64(std::uint64_t index) const {
    const auto words = block(index / 2);
    const auto low = 2 * (index % 2);
    return words[low] | static_cast<std::uint64_t>(words[low + 1]) << 32;
  }
  /// Uniform in [0, 1), a multiple of 2^-53.
  constexpr double uniform(std::uint64_t index) const { return static_cast<double>(bits64(index) >> 11) * 0x1p-53; }
  /// Uniform integer in [0, n), n >= 1, with a bias below n / 2^64.
  constexpr std::uint64_t below(std::uint64_t n, std::uint64_t index) const {
    return static_cast<std::uint64_t>((static_cast<uint128>(bits64(index)) * n) >> 64);
  }
  /// Standard normal (Box-Muller, cosine branch).
  double normal(std::uint64_t index) const {
    const double radius = std::sqrt(-2 * std::log1p(-uniform(2 * index)));
    return radius * std::cos(2 * std::numbers::pi * uniform(2 * index + 1));
  }

 private:
  std::array<std::uint32_t, 2> key_;
  std::uint32_t site_, sample_, step_;
};

}  // namespace lockstep
