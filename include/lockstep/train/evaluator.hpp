#pragma once
#include <cstdint>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/models/model.hpp"

namespace lockstep {

/// Samples per piece of an evaluation: depends on the size of the split alone, so that the sums do too.
std::int64_t evaluation_piece(std::int64_t size);

/// The model's metrics over a whole split, sharded over ranks and threads in fixed pieces whose sums are added in the
/// order of the pieces: the same bits on any number of ranks and threads. Collective; all ranks return the same.
std::vector<Metric> evaluate(Communicator& comm, const Model& model, Split split, int threads);

}  // namespace lockstep
