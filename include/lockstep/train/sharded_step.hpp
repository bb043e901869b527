#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/models/model.hpp"

namespace lockstep {

/// One optimizer step's samples: positions [first, first + count) of an epoch's order, over all ranks.
struct GlobalBatch {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t step = 0;  ///< global step, from 0
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t micro = 0;  ///< samples per micro-batch; 0: all at once
  double loss_scale = 1;   ///< the gradient is that of this many times the loss
  bool operator==(const GlobalBatch&) const = default;
};

/// How gradients travel between ranks (dist.compress): with all their digits, or as bf16, added in f32.
enum class Compression : std::uint8_t { none, bf16 };

/// What carries gradients between ranks (run.backend): NCCL between GPUs, or MPI through host memory; automatic takes
/// NCCL where every rank has a GPU of its own.
enum class Backend : std::uint8_t { automatic, mpi, nccl };

/// Whether a GPU's steps are put into CUDA graphs (run.graphs), each while the one before it runs; automatic: where that can
/// be done.
enum class Graphs : std::uint8_t { automatic, off, on };

struct StepOptions {
  int threads = 1;
  std::int64_t shards = 16;  ///< of a micro-batch, over all ranks
  bool reproducible = false;
  std::int64_t bucket_bytes = std::int64_t{4} << 20;
  Compression compression = Compression::none;
  Backend backend = Backend::automatic;
  Graphs graphs = Graphs::automatic;
  double timeout_s = 0;  ///< of NCCL; MPI's is the World's
};

/// What a rank wants all ranks to know with this step; they all see the union.
enum StepFlag : unsigned { kStop = 1, kCheckpoint = 2 };

/// What a step's reduction brought, the same bits on all ranks.
struct StepSums {
  double loss = 0;     ///< sum over the samples, not their mean
  double weight = 0;   ///< what a mean divides by
  unsigned flags = 0;  ///< StepFlag of any rank
};

/// Wall seconds of the last step on this rank.
struct StepSeconds {
  double compute = 0;  ///< forward, backward, and the sum over threads
  double reduce = 0;   ///< waiting for the other ranks' gradients; by NCCL it is part of compute
};

/// The gradient of one global batch: shards on OpenMP threads, each with its own tape, arena and gradient buffer, then
/// the sum over threads and ranks. A step allocates nothing once the arenas have grown.
///
/// Default: each rank takes its part of the batch, each thread some shards of it in order; buffers are summed over
/// threads in a fixed order and over ranks in buckets of the flat vector, started in backward order as the last thread
/// finishes them. Reproducible: the micro-batch is cut into exactly `shards` pieces, each gradient is kept apart and
/// all are summed in one binary tree over shard numbers (comm/tree_reduce.hpp): the same bits for any number of ranks
/// and threads. Loss, weight and flags travel in front of the gradient: one reduction per step.
///
/// On a GPU whose gradient stays there (one rank, or NCCL) start() returns while the GPU works, and the host may meanwhile
/// prepare() what comes next:
///
///   step.start(batch, flags);
///   ... work for the same stream, such as the norm of gradient() ...
///   step.prepare(next_batch);
///   const StepSums sums = step.finish();   // the step's one wait
class ShardedStep {
 public:
  /// errors  Error (usage): reproducible with a number of shards that is no power of two
  ShardedStep(Communicator& comm, Model& model, const StepOptions& options);
  ~ShardedStep();
  ShardedStep(const ShardedStep&) = delete;
  ShardedStep& operator=(const ShardedStep&) = delete;

  /// Leaves the gradient of the *sum* of losses over all ranks, times batch.loss_scale, in gradient(). Collective.
  StepSums run(const GlobalBatch& batch, unsigned flags = 0);
  /// The same in two parts: in between, gradient() is what it will be for whoever gives work to the GPU's main stream.
  void start(const GlobalBatch& batch, unsigned flags = 0);
  StepSums finish();
  /// Between the two, once: the batch that start() will most likely be given next. Any other is as right, only slower. Uses
  /// neither weights nor other results of the step under way before that start(). Collective.
  void prepare(const GlobalBatch& next);
  /// The samples of micro-batch `micro` (0 when there is only one) that a rank works on.
  Shard rank_part(const GlobalBatch& batch, std::int64_t micro, int rank) const;
  /// shapes  (flat_size of the model's parameters), valid until the next run()
  const Tensor& gradient() const;
  const StepSeconds& seconds() const;
  std::int64_t buckets() const;
  /// Bytes of gradient buffers and arenas that this rank holds.
  std::size_t gradient_bytes() const;
  std::size_t arena_bytes() const;
  /// How the gradients of row-sparse parameters travel between ranks, as the first step has decided: "by rows, ..." or
  /// "whole, ...". Empty before it, and where there is nothing to decide.
  std::string row_choice() const;
  /// "self", "mpi" or "nccl".
  const char* backend() const;

  struct Impl;  ///< for sharded_step.cpp alone

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
