#pragma once
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "lockstep/data/row_source.hpp"

namespace lockstep {

struct TrainState;

/// Fetches the rows of the data set that the steps of a program read, those of some steps together, while earlier steps
/// are computed.
class StepRows {
 public:
  /// The samples of a step, over all ranks, and the position after it.
  struct Step {
    std::int64_t samples = 0, end = 0;
  };
  /// Appends the rows that this rank reads in the step at this position.
  using Reads = std::function<Step(const TrainState& at, std::vector<std::int64_t>& rows)>;
  /// rows  null: all rows are in memory
  StepRows(RowSource* rows, Reads reads) : rows_(rows), reads_(std::move(reads)) {}
  /// Makes the rows of the step at this position available, and lets those of later steps come. Collective.
  /// positions  of an epoch
  void fetch(const TrainState& state, std::int64_t positions);

 private:
  /// Some steps whose rows are fetched together.
  struct Fetched {
    std::int64_t first = 0, end = 0;       ///< steps
    std::int64_t epoch = 0, position = 0;  ///< after the last of them
  };
  Fetched start(std::int64_t step, std::int64_t epoch, std::int64_t position, std::int64_t positions);

  RowSource* rows_;
  Reads reads_;
  Fetched here_, ahead_;      ///< rows that are here, and rows that are coming
  std::int64_t fetches_ = 0;  ///< RowSource::fetches() of ahead_
};

}  // namespace lockstep
