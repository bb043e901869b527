#pragma once
#include <cstdint>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/train/task.hpp"

namespace lockstep {

/// Number of chunks of an evaluation with this many sums. It is independent of ranks and threads, and so is the order
/// of additions.
std::int64_t evaluation_chunks(std::int64_t sums);

/// The metrics of a task over a whole split. Ranks and threads evaluate fixed chunks of the split, whose sums are added
/// in a fixed tree: the same bits on any number of ranks and threads. Collective; all ranks return the same.
///
/// tables  receives Task::tables() unless null
std::vector<Metric> evaluate(Communicator& comm, Task& model, Split split, int threads,
                             std::vector<MetricTable>* tables = nullptr);

}  // namespace lockstep
