#pragma once
#include <cstdint>

namespace lockstep {

/// A random permutation of 0..n-1 as a function: permutation(i) costs some nanoseconds, no memory, and depends on (n, seed, epoch) alone,
/// so that any rank can look up any position of any epoch, in any order.
///
/// A Feistel network over the smallest number of bits (at least 4) that holds n, its halves differing by at most one bit, its rounds keyed
/// from Philox(seed, epoch), with cycle walking for values outside 0..n-1: fewer than 2 walks on average for n > 8.
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

/// Part of a run's global sample order: the samples of one shard of one step's global batch, and the key of everything random in it.
struct Shard {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t step = 0;   ///< global step, from 0
  std::int64_t first = 0;  ///< position in the epoch of the first sample
  std::int64_t count = 0;  ///< samples; may be 0
};

}  // namespace lockstep
