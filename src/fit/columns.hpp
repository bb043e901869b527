#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/data/shard.hpp"

namespace lockstep::fit {

/// Columns in physical units, one after another: x (count, n_in), y (count, n_out), weights (count) in the loss, and
/// identities: count, or none.
struct Columns {
  std::int64_t n_in, n_out;
  std::vector<float> x = {}, y = {}, weights = {};
  std::vector<std::int64_t> ids = {};
  std::int64_t count() const { return std::ssize(weights); }
  void clear() {
    x.clear();
    y.clear();
    weights.clear();
    ids.clear();
  }
};

/// Columns that follow one another in a batch, and on the rank that has them.
struct Run {
  int rank = 0;
  std::int64_t first = 0, count = 0;
};

/// All columns in the order of their identities, which `sorted` receives. of_rank: the identities of each rank's columns
/// errors  Error (usage): an identity that occurs twice
std::vector<Run> by_identity(const Gathered& of_rank, std::vector<std::int64_t>& sorted);

/// Moves the columns between ranks, so that each has its part of a batch. `from` is empty afterwards. Collective.
///
/// order  all columns of the batch
/// parts  of the batch, of each rank
void move_columns(Communicator& comm, Columns& from, Columns& to, const std::vector<Run>& order,
                  const std::vector<Shard>& parts);

}  // namespace lockstep::fit
