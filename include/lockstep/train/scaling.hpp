#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/nn/params.hpp"

namespace lockstep {

/// Time of a message between ranks: alpha + beta * bytes. Units: seconds, seconds per byte.
struct LinkCost {
  double alpha_s = 0, beta_s = 0;
};

/// One measured all-reduce.
struct AllReduceTime {
  std::size_t bytes = 0;
  double seconds = 0;
};

/// Seconds of an all-reduce of so many bytes among p members (ranks, or hosts when a reduction inside each comes first).
///
///   T(p, n) = 2 ceil(log2 p) alpha + 2 (p - 1) / p n beta,   T(1, n) = 0
///
/// source  Thakur, Rabenseifner, Gropp 2005, "Optimization of Collective Communication Operations in MPICH", eq. of
///         reduce-scatter + all-gather; the lower bound in n
double all_reduce_seconds(LinkCost cost, std::int64_t members, double bytes);

/// The cost that fits measured all-reduces among p members best: least squares of relative errors, neither constant negative.
/// errors  Error (usage) with fewer than two sizes or members
LinkCost fit_link_cost(const std::vector<AllReduceTime>& times, std::int64_t members);

/// A training step to be predicted.
struct StepWork {
  double compute_s = 0;                   ///< forward and backward of the samples that a rank has in the measured run
  double update_s = 0;                    ///< optimizer and what else does not shrink with more ranks
  std::int64_t ranks = 1;                 ///< of the measured run
  std::int64_t ranks_per_member = 1;      ///< ranks of a host, when hosts are the members
  std::int64_t shards = 1;                ///< parts that the ranks' threads compute one after another, over all ranks
  bool fixed_global_batch = true;         ///< compute shrinks as ranks grow; else every rank keeps its samples
  std::vector<double> bucket_bytes = {};  ///< in the order in which the backward finishes them
  bool overlap = true;                    ///< buckets travel while the backward goes on
  bool embeddings_first = false;  ///< the first bucket is ready before the products for weights (Tape::parameters_last)
};

/// Bytes of the messages that carry the gradient, in the order in which the backward pass finishes them: buckets of at least
/// `bucket_bytes`, with `element_bytes` per number on the way.
std::vector<double> gradient_messages(const ParamStore& params, std::int64_t bucket_bytes, double element_bytes);

/// Whether the first of these messages carries embeddings, and the backward pass leaves products for weights until it is on its way.
bool embeddings_first(const ParamStore& params, std::int64_t bucket_bytes);

struct StepPrediction {
  std::int64_t ranks = 1;
  double step_s = 0;
  double communication_s = 0;  ///< time that messages take, seen or not
  double exposed_s = 0;        ///< of it, what a step waits for
  double speed = 1;            ///< samples per second, relative to the measured compute and update alone on one rank
  double efficiency = 1;       ///< speed / ranks
};

/// The backward is two thirds of the compute; buckets become ready in that of a rank's last shard in proportion to their bytes,
/// and travel one after the other. Embeddings that go first do so when two thirds of it are done.
StepPrediction predict_step(const StepWork& work, LinkCost cost, std::int64_t ranks);

/// "2..1024" -> 2, 4, 8, ..., 1024 (doubling from the first, the last included), "6" -> 6. errors  Error (usage)
std::vector<std::int64_t> read_rank_range(const std::string& text);

}  // namespace lockstep
