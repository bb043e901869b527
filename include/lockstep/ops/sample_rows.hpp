#pragma once
#include <cstdint>
#include <span>

#include "lockstep/base/philox.hpp"

namespace lockstep::ops {

/// Samples whose rows lie end to end in an array, without padding: rows offsets[b] .. offsets[b + 1] - 1 belong to
/// sample b. What is random in a row is keyed by the sample's global number and the row's place within the sample, so
/// that it depends on neither the shard nor the rank that holds it. The memory is the caller's and outlives the tape.
struct SampleRows {
  std::span<const std::int64_t> offsets;   ///< (B + 1), ascending, offsets[0] = 0
  std::span<const std::uint64_t> samples;  ///< (B), global numbers
  std::int64_t count() const { return static_cast<std::int64_t>(samples.size()); }
  std::int64_t rows() const { return offsets.empty() ? 0 : offsets.back(); }
};

/// One place of a network that drops elements, in one step.
struct Dropout {
  double rate = 0;  ///< 0 <= rate < 1; 0: nothing is dropped
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  Site site{0u};
  explicit operator bool() const { return rate > 0; }
  constexpr Philox draws(std::uint64_t sample) const { return {seed, step, site, sample}; }
};

}  // namespace lockstep::ops
