#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/nn/params.hpp"

namespace lockstep {

/// Cost of a message between ranks: alpha + beta * bytes. Units: seconds, seconds per byte.
struct LinkCost {
  double alpha_s = 0, beta_s = 0;
};

/// One measured all-reduce.
struct AllReduceTime {
  std::size_t bytes = 0;
  double seconds = 0;
};

/// Time of an all-reduce among p members (ranks, or hosts if each host reduces internally first). Units: bytes,
/// seconds.
///
///   T(p, n) = 2 ceil(log2 p) alpha + 2 (p - 1) / p n beta,   T(1, n) = 0
///
/// source  Thakur, Rabenseifner, Gropp 2005, "Optimization of Collective Communication Operations in MPICH",
///         reduce-scatter plus all-gather; the bandwidth term is the lower bound
double all_reduce_seconds(LinkCost cost, std::int64_t members, double bytes);

/// Fits the cost to measured all-reduces: non-negative least squares of the relative errors.
/// errors  Error (usage) with fewer than two sizes or members
LinkCost fit_link_cost(const std::vector<AllReduceTime>& times, std::int64_t members);

/// A measured training step.
struct StepWork {
  double compute_s = 0;                   ///< forward and backward pass of a rank's samples
  double update_s = 0;                    ///< optimizer, and all other work that does not shrink with more ranks
  std::int64_t ranks = 1;                 ///< of the measured run
  std::int64_t ranks_per_member = 1;      ///< ranks per host if hosts are the members, else 1
  std::int64_t shards = 1;                ///< shards per thread, summed over all ranks
  bool fixed_global_batch = true;         ///< compute shrinks with more ranks; else the samples of a rank stay the same
  std::vector<double> bucket_bytes = {};  ///< in the order in which the backward pass completes them
  bool overlap = true;                    ///< buckets travel during the backward pass
  bool embeddings_first = false;  ///< the first bucket is ready before the products for weights (Tape::parameters_last)
};

/// Sizes of the messages of a gradient, in the order in which the backward pass completes them: buckets of at least
/// `bucket_bytes`, sent with `element_bytes` per element. Units: bytes.
std::vector<double> gradient_messages(const ParamStore& params, std::int64_t bucket_bytes, double element_bytes);

/// Whether the first of these messages holds the embeddings. The backward pass then computes the gradients of weights
/// after this message.
bool embeddings_first(const ParamStore& params, std::int64_t bucket_bytes);

struct StepPrediction {
  std::int64_t ranks = 1;
  double step_s = 0;
  double communication_s = 0;  ///< of all messages
  double exposed_s = 0;        ///< communication that a step waits for
  double speed = 1;            ///< speed-up over one rank without communication
  double efficiency = 1;       ///< speed / ranks
};

/// Predicts the step on another number of ranks. The model: the backward pass takes two thirds of the compute time.
/// During the backward pass of a rank's last shard, buckets become ready in proportion to their bytes and are sent one
/// after the other. If the embeddings are the first bucket, they are ready after two thirds of that pass.
StepPrediction predict_step(const StepWork& work, LinkCost cost, std::int64_t ranks);

/// A step of which only the times of its parts were measured, on members of equal size: `wait_s` per step for the
/// messages of all, none of them hidden by computation. Sets `cost` to that of these messages. Units: seconds.
StepWork work_of_wait(double compute_s, double wait_s, double update_s, std::int64_t ranks, std::int64_t members,
                      LinkCost& cost);

/// The number of members (hosts, or ranks of one host) that still pay: it is doubled, up to 1024, while this saves at
/// least a fifth of the time per sample.
std::int64_t paying_members(const StepWork& work, LinkCost cost);
/// The same as a line: "nodes that pay: 2 (a step: 8.0ms on 1, 5.0ms on 2, 4.5ms on 4)", with the remedy if more of
/// them are used. member  "node" or "rank"
std::string paying_text(const StepWork& work, LinkCost cost, const std::string& member, std::int64_t used);

/// "2..1024" -> 2, 4, 8, ..., 1024 (the last is always included); "6" -> 6. errors  Error (usage)
std::vector<std::int64_t> read_rank_range(const std::string& text);

}  // namespace lockstep
