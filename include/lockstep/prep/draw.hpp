#pragma once
#include <cstdint>
#include <vector>

#include "lockstep/base/philox.hpp"

namespace lockstep::prep {

/// Draws `count` of the numbers 0 .. n-1 without replacement, as a function of seed and site. Returns them ascending.
std::vector<std::int64_t> draw_subset(std::int64_t n, std::int64_t count, std::uint64_t seed, Site site);
/// The numbers 0 .. n-1 in random order.
std::vector<std::int64_t> draw_permutation(std::int64_t n, std::uint64_t seed, Site site);

/// Consecutive draws from one Philox key, for generators that need an unknown number of them.
class Draws {
 public:
  Draws(std::uint64_t seed, std::uint64_t step, Site site, std::uint64_t sample = 0)
      : random_(seed, step, site, sample) {}
  double uniform() { return random_.uniform(next_++); }
  double normal();
  /// Gamma(shape, scale), shape >= 1. source  Marsaglia, Tsang 2000, "A simple method for generating gamma variables"
  double gamma(double shape, double scale);

 private:
  Philox random_;
  std::uint64_t next_ = 0;
};

}  // namespace lockstep::prep
