#pragma once
#include <cstdint>

namespace lockstep {

/// A random permutation of 0..n-1 as a function of (n, seed, epoch): any rank can look up any position of any epoch, in
/// any order. A lookup takes some nanoseconds and no memory.
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
  std::int64_t size() const { return n_; }
  std::int64_t operator()(std::int64_t position) const;

 private:
  std::int64_t n_;
  int left_bits_, right_bits_;
  std::uint64_t keys_[kRounds];
};

}  // namespace lockstep
