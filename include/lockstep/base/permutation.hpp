#pragma once
#include <cstdint>

namespace lockstep {

/// A random permutation of 0..n-1 as a function of (n, seed, epoch): any rank can look up any position of any epoch, in
/// any order, and so can a kernel. A lookup takes some nanoseconds and no memory.
///
/// A Feistel network over the smallest number of bits (at least 4) that holds n. Its halves differ by at most one bit;
/// Philox(seed, epoch) keys its rounds. Values outside 0..n-1 are permuted again (cycle walking), fewer than 2 times on
/// average for n > 8.
///
/// errors  Error if n is not in 1..2^62
/// source  Luby, Rackoff 1988; Black, Rogaway 2002 (cycle walking)
class Permutation {
 public:
  static constexpr int kRounds = 6;
  Permutation(std::int64_t n, std::uint64_t seed, std::uint64_t epoch);
  constexpr std::int64_t size() const { return n_; }
  constexpr std::int64_t operator()(std::int64_t position) const {
    static_assert(kRounds % 2 == 0, "the halves swap their widths in each round");
    const std::uint64_t left_mask = (std::uint64_t{1} << left_bits_) - 1,
                        right_mask = (std::uint64_t{1} << right_bits_) - 1;
    std::uint64_t value = static_cast<std::uint64_t>(position);
    do {  // cycle walking: repeat until the value lies in 0..n-1
      std::uint64_t left = value >> right_bits_, right = value & right_mask;
      for (int round = 0; round < kRounds; round += 2) {
        left ^= mix(right + keys_[round]) & left_mask;
        right ^= mix(left + keys_[round + 1]) & right_mask;
      }
      value = (left << right_bits_) | right;
    } while (value >= static_cast<std::uint64_t>(n_));
    return static_cast<std::int64_t>(value);
  }

 private:
  /// A keyed hash of one half (SplitMix64's finaliser). source  Steele, Lea, Flood 2014
  static constexpr std::uint64_t mix(std::uint64_t value) {
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
    return value ^ (value >> 31);
  }
  std::int64_t n_;
  int left_bits_, right_bits_;
  std::uint64_t keys_[kRounds];
};

}  // namespace lockstep
