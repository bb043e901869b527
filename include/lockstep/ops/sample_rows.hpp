#pragma once
#include <algorithm>
#include <cstdint>
#include <span>

#include "lockstep/base/philox.hpp"

namespace lockstep::ops {

/// Samples whose rows lie end to end in an array, without padding: rows offsets[b] .. offsets[b + 1] - 1 belong to
/// sample b. Random numbers for a row are keyed by the sample's global number and the row's position within the sample,
/// so they depend on neither the shard nor the rank that holds it. The caller owns the memory, which must outlive the
/// tape.
///
/// `capacity` is a fixed capacity: the arrays then have that many rows, and the rows after the samples are 0 in all
/// results and gradients of operations on samples. The launches on a GPU then depend on capacity, longest and the
/// number of samples alone, so that a graph can repeat them for other offsets.
struct SampleRows {
  std::span<const std::int64_t> offsets;   ///< (B + 1), ascending, offsets[0] = 0
  std::span<const std::uint64_t> samples;  ///< (B) global sample numbers
  std::int64_t capacity = 0;               ///< rows of the arrays; 0: as many as the samples have
  std::int64_t longest = 0;                ///< with capacity: no sample has more rows
  std::int64_t count() const { return std::ssize(samples); }
  /// Rows of the samples, and rows of the arrays.
  std::int64_t used() const { return offsets.empty() ? 0 : offsets.back(); }
  std::int64_t rows() const { return capacity > 0 ? capacity : used(); }
  std::int64_t longest_sample() const {
    std::int64_t most = longest;
    for (std::size_t b = 0; capacity == 0 && b < samples.size(); ++b)
      most = std::max(most, offsets[b + 1] - offsets[b]);
    return most;
  }
};

/// Dropout at one site of a network, in one step.
struct Dropout {
  double rate = 0;  ///< 0 <= rate < 1; 0: nothing is dropped
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  Site site{0u};
  const std::uint64_t* step_on_gpu = nullptr;  ///< GPU memory that kernels read in place of `step`, unless null
  explicit operator bool() const { return rate > 0; }
  constexpr Philox draws(std::uint64_t sample) const {
    return {seed, step_on_gpu != nullptr ? *step_on_gpu : step, site, sample};
  }
};

}  // namespace lockstep::ops
