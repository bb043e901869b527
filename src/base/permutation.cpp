#include "lockstep/base/permutation.hpp"

#include "lockstep/base/error.hpp"
#include "lockstep/base/philox.hpp"

namespace lockstep {

Permutation::Permutation(std::int64_t n, std::uint64_t seed, std::uint64_t epoch) : n_(n) {
  require(n >= 1 && n <= std::int64_t{1} << 62, "a permutation of ", n, " items: must be 1..2^62");
  int bits = 4;
  while ((std::int64_t{1} << bits) < n) ++bits;
  left_bits_ = bits / 2;
  right_bits_ = bits - left_bits_;
  const Philox draw(seed, epoch, "permutation");
  for (int round = 0; round < kRounds; ++round) keys_[round] = draw.bits64(static_cast<std::uint64_t>(round));
}

}  // namespace lockstep
