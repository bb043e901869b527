#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/data/puzzle_data.hpp"

namespace lockstep {

/// Every random choice of one iteration over a set of puzzles, as a function: the same on all ranks and threads.
class PuzzleDraws {
 public:
  virtual ~PuzzleDraws() = default;
  /// The group of visit v = 0, 1, ...; every group occurs once in each run of `groups` visits.
  virtual std::int64_t group(std::int64_t visit) const = 0;
  /// One of `puzzles` puzzles of that group.
  virtual std::int64_t puzzle(std::int64_t visit, std::int64_t puzzles) const = 0;
  /// The i-th of that puzzle's `examples` in random order.
  virtual std::int64_t example(std::int64_t visit, std::int64_t examples, std::int64_t i) const = 0;
};

/// Philox(seed + iteration) through base/philox and Permutation.
std::unique_ptr<PuzzleDraws> make_puzzle_draws(std::int64_t groups, std::uint64_t seed, std::int64_t iteration);

/// The training batches of one iteration over one set.
///
/// Visits are taken in order. While the batch has room a visit adds min(its puzzle's examples, room) of them; what does
/// not fit of a puzzle is not used, and the next batch begins with the next visit. A last batch that is not full is
/// dropped.
class PuzzleBatches {
 public:
  /// `visits`: of all groups together. `variants`: puzzles per stored one (online files).
  PuzzleBatches(const PuzzlePart& part, std::int64_t variants, std::int64_t visits, std::int64_t batch,
                std::unique_ptr<PuzzleDraws> draws);
  std::int64_t count() const { return count_; }
  /// Rows [first, first + rows.size()) of a batch.
  void rows(std::int64_t batch, std::int64_t first, std::span<PuzzleExample> rows) const;

 private:
  struct Visit {
    std::int64_t group, puzzle, variant, first, examples;
  };
  Visit visit(std::int64_t v) const;

  const PuzzlePart* part_;
  std::int64_t variants_, batch_, count_ = 0;
  std::unique_ptr<PuzzleDraws> draws_;
  bool single_;                       ///< every puzzle has one example: a visit is a row
  std::vector<std::int64_t> starts_;  ///< else: the first visit of each batch
};

/// The training batches of a run: epoch e visits every group of every set `visits` times, one iteration per set, numbered
/// 1, 2, ... over sets and epochs.
class PuzzleSampler {
 public:
  /// errors  usage: a batch that no iteration fills
  PuzzleSampler(const PuzzleData& data, std::uint64_t seed, std::int64_t visits, std::int64_t batch);
  /// Batches of an epoch if every puzzle were of mean size; exact when each has one example.
  std::int64_t nominal_batches() const;
  /// Prepares an epoch. Not to be called while rows() runs.
  void begin(std::int64_t epoch);
  std::int64_t batches() const;  ///< of the epoch that was begun
  void rows(std::int64_t batch, std::int64_t first, std::span<PuzzleExample> rows) const;

 private:
  const PuzzleData& data_;
  std::uint64_t seed_;
  std::int64_t visits_, batch_, epoch_ = -1;
  std::vector<PuzzleBatches> sets_;
};

}  // namespace lockstep
