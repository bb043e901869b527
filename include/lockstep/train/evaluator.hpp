#pragma once
#include <cstdint>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/models/model.hpp"

namespace lockstep {

/// Pieces of an evaluation with this many sums: fixed, so that the order of additions is.
std::int64_t evaluation_pieces(std::int64_t sums);

/// The model's metrics over a whole split, sharded over ranks and threads in fixed pieces whose sums are added in the
/// order of the pieces: the same bits on any number of ranks and threads. Collective; all ranks return the same.
/// `tables`, unless null, gets the model's tables.
std::vector<Metric> evaluate(Communicator& comm, Model& model, Split split, int threads,
                             std::vector<MetricTable>* tables = nullptr);

}  // namespace lockstep
