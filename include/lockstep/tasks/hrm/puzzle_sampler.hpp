#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/tasks/hrm/puzzle_data.hpp"

namespace lockstep {

/// The random choices of one iteration over a set of puzzles, as functions: the same on all ranks and threads.
class PuzzleDraws {
 public:
  virtual ~PuzzleDraws() = default;
  /// The group of visit 0, 1, ...; every group occurs once in each run of `groups` visits.
  virtual std::int64_t group(std::int64_t visit) const = 0;
  /// One of the `puzzles` puzzles of that group.
  virtual std::int64_t puzzle(std::int64_t visit, std::int64_t puzzles) const = 0;
  /// The i-th of that puzzle's `examples` examples, in random order.
  virtual std::int64_t example(std::int64_t visit, std::int64_t examples, std::int64_t i) const = 0;
};

/// Draws from Philox(seed + iteration) and Permutation.
std::unique_ptr<PuzzleDraws> make_puzzle_draws(std::int64_t groups, std::uint64_t seed, std::int64_t iteration);

/// The training batches of one iteration over one set of puzzles.
///
/// Each visit adds the examples of its puzzle until the batch is full. Examples of the last puzzle that do not fit are
/// not used; the next batch begins with the next visit. An incomplete last batch is dropped.
class PuzzleBatches {
 public:
  /// `visits` is the total over all groups, `variants` the number of variants of each stored puzzle (online files).
  PuzzleBatches(const PuzzlePart& part, std::int64_t variants, std::int64_t visits, std::int64_t batch,
                std::unique_ptr<PuzzleDraws> draws);
  std::int64_t count() const { return count_; }
  /// Reads the rows [first, first + rows.size()) of a batch.
  void rows(std::int64_t batch, std::int64_t first, std::span<PuzzleExample> rows) const;

 private:
  struct Visit {
    std::int64_t group, puzzle, variant, first, examples;
  };
  Visit visit(std::int64_t v) const;

  const PuzzlePart* part_;
  std::int64_t variants_, batch_, count_ = 0;
  std::unique_ptr<PuzzleDraws> draws_;
  bool single_;                       ///< every puzzle has one example, so a visit is a row
  std::vector<std::int64_t> starts_;  ///< first visit of each batch, unless single_
};

/// The training batches of a run. An epoch visits every group of every set `visits` times, with one iteration per set;
/// iterations are numbered 1, 2, ... over sets and epochs.
class PuzzleSampler {
 public:
  /// errors  usage: no iteration fills a batch
  PuzzleSampler(const PuzzleData& data, std::uint64_t seed, std::int64_t visits, std::int64_t batch);
  /// Batches of an epoch if every puzzle had the mean number of examples; exact if each has one.
  std::int64_t nominal_batches() const;
  /// Prepares an epoch. Must not overlap rows().
  void begin(std::int64_t epoch);
  /// Batches of the current epoch.
  std::int64_t batches() const;
  /// Reads the rows [first, first + rows.size()) of a batch of the current epoch.
  void rows(std::int64_t batch, std::int64_t first, std::span<PuzzleExample> rows) const;

 private:
  const PuzzleData& data_;
  std::uint64_t seed_;
  std::int64_t visits_, batch_, epoch_ = -1;
  std::vector<PuzzleBatches> sets_;
};

}  // namespace lockstep
