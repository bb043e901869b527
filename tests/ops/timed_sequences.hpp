#pragma once
#include "support/test.hpp"

namespace lockstep::test {

/// Sequences whose times have ties, short gaps and long gaps.
struct TimedSequences {
  std::vector<std::int64_t> offsets, times;
  std::vector<std::uint64_t> samples;
  std::int64_t rows() const { return offsets.back(); }

  explicit TimedSequences(const std::vector<std::int64_t>& lengths) {
    offsets.push_back(0);
    const Philox draws(3, 0, "times");
    for (std::size_t b = 0; b < lengths.size(); ++b) {
      std::int64_t time = 100;
      for (std::int64_t i = 0; i < lengths[b]; ++i) {
        const auto draw = draws.below(10, times.size());
        time += draw < 4 ? 0 : draw < 9 ? static_cast<std::int64_t>(draw - 3) : 1000;
        times.push_back(time);
      }
      offsets.push_back(offsets.back() + lengths[b]);
      samples.push_back(11 * b + 5);
    }
  }
};

}  // namespace lockstep::test
