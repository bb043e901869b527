#include "lockstep/data/permutation.hpp"

#include "lockstep/base/error.hpp"
#include "lockstep/base/philox.hpp"

namespace lockstep {
namespace {

/// A keyed hash of one half (SplitMix64's finaliser). source  Steele, Lea, Flood 2014
std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

}  // namespace

Permutation::Permutation(std::int64_t n, std::uint64_t seed, std::uint64_t epoch) : n_(n) {
  require(n >= 1 && n <= std::int64_t{1} << 62, "a permutation of ", n, " items: must be 1..2^62");
  int bits = 4;
  while ((std::int64_t{1} << bits) < n) ++bits;
  left_bits_ = bits / 2;
  right_bits_ = bits - left_bits_;
  const Philox draw(seed, epoch, "permutation");
  for (int round = 0; round < kRounds; ++round) keys_[round] = draw.bits64(static_cast<std::uint64_t>(round));
}

std::int64_t Permutation::operator()(std::int64_t position) const {
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

}  // namespace lockstep
