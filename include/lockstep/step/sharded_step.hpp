#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/optim/gpu_update.hpp"
#include "lockstep/step/shard_model.hpp"

namespace lockstep {

class RowExchange;

/// The samples of one optimizer step over all ranks: positions [first, first + count) of an epoch's order.
struct GlobalBatch {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t step = 0;  ///< global step, from 0
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t micro = 0;  ///< samples per micro-batch; 0: all at once
  double loss_scale = 1;   ///< factor of the loss in the backward pass
  bool operator==(const GlobalBatch&) const = default;
};

/// How gradients travel between ranks (dist.compress): in full precision, or as bf16 and summed in f32.
enum class Compression : std::uint8_t { none, bf16 };

/// The library that reduces gradients over ranks (run.backend): NCCL between GPUs, or MPI through host memory.
/// automatic: NCCL if every rank has its own GPU.
enum class Backend : std::uint8_t { automatic, mpi, nccl };

/// Whether a GPU's steps are captured in CUDA graphs and repeated (run.graphs). automatic: if possible.
enum class Graphs : std::uint8_t { automatic, off, on };

struct StepOptions {
  int threads = 1;
  std::int64_t shards = 16;  ///< of a micro-batch, over all ranks
  bool reproducible = false;
  std::int64_t bucket_bytes = std::int64_t{4} << 20;
  std::int64_t gpu_bucket_bytes = std::int64_t{32} << 20;  ///< instead of it, between GPUs by NCCL
  std::int64_t gpu_row_bytes = 0;  ///< NCCL sends tables of this size or more by rows; 0: as GpuRowExchange chooses
  Compression compression = Compression::none;
  Backend backend = Backend::automatic;
  Graphs graphs = Graphs::automatic;
  double timeout_s = 0;  ///< of NCCL; WorldOptions has the one of MPI
};

/// Why CPU threads have no work in a reproducible step over `ranks` ranks, and the remedy; "" if every thread has a
/// shard, or the step is not reproducible.
std::string idle_threads(const StepOptions& options, std::int64_t ranks);

/// Requests of a rank to all ranks. The result of a step holds the union over ranks.
enum StepFlag : unsigned {
  kStop = 1,
  kCheckpoint = 2,
  kWriting = 4,  ///< the rank is still writing its part of a checkpoint
};

/// The scalars of a step, summed over all ranks; the same bits on all ranks.
struct StepSums {
  double loss = 0;     ///< sum over the samples
  double weight = 0;   ///< divisor of the mean loss
  unsigned flags = 0;  ///< StepFlag of any rank
};

/// The inputs of a step on a GPU besides its batch.
struct StepInput {
  double lr = 0;
  LossScale loss_scale = {};  ///< fp16 only: the latest value that the host knows
  Ema* average = nullptr;     ///< updated with the weights, unless null
};

/// A step that a GPU has completed.
struct EndedStep {
  std::int64_t step = 0;  ///< GlobalBatch::step
  GpuOutcome outcome;
};

/// Wall seconds of the last step on this rank.
struct StepSeconds {
  double compute = 0;  ///< forward, backward, and the sum over threads
  double reduce = 0;   ///< waiting for the gradients of other ranks; part of `compute` with NCCL
};

/// The gradient of one global batch. OpenMP threads compute shards, each thread with its own tape, arena and gradient
/// buffer; then gradients are summed over threads and ranks. A step allocates nothing once the arenas have grown.
///
/// Default mode: each rank takes a contiguous share of the batch, each thread some shards of it, in order. Gradients
/// are summed over threads in a fixed order, and over ranks in buckets of the flat gradient, which start as the
/// backward pass completes them.
///
/// Reproducible mode: a micro-batch is cut into exactly `shards` shards. Their gradients are kept separately and summed
/// in one binary tree over shard numbers (comm/tree_reduce.hpp): the same bits for any number of ranks and threads.
///
/// Loss, weight and flags are sent in front of the gradient, so a step needs one reduction.
///
/// If the gradient stays on a GPU (one rank, or NCCL), the GPU also updates the weights, and the host only enqueues:
///
///   step.start(batch, flags, input);          // returns while the GPU works
///   const auto before = step.take(false);     // the outcome of the previous step
class ShardedStep {
 public:
  ShardedStep() = default;
  virtual ~ShardedStep() = default;
  ShardedStep(const ShardedStep&) = delete;
  ShardedStep& operator=(const ShardedStep&) = delete;

  /// Sets gradient() to the gradient of the *sum* of losses over all ranks, times batch.loss_scale. Collective.
  virtual StepSums run(const GlobalBatch& batch, unsigned flags = 0) = 0;
  /// Whether the gradient stays on a GPU, as start() and take() require.
  virtual bool stays_on_gpu() const = 0;
  /// Enqueues a step and its update. Take the outcomes of all earlier steps but the previous one first. Collective.
  virtual void start(const GlobalBatch& batch, unsigned flags, const StepInput& input) = 0;
  /// Waits for the oldest step whose outcome was not taken and returns it; returns nothing if there is no such step.
  /// Considers the step that was started last only if `last` is set: otherwise the GPU keeps working while the host
  /// waits.
  /// errors  Error if a rank is late or the GPU failed
  virtual std::optional<EndedStep> take(bool last) = 0;
  /// The samples of a micro-batch that a rank computes.
  virtual Shard rank_part(const GlobalBatch& batch, std::int64_t micro, int rank) const = 0;
  /// Add only to elements in its `nonzero`, or add them there, as add_penalty() does: the next step clears no others.
  ///
  /// shapes  (flat_size of the model's parameters), valid until the next start()
  const FlatGradient& gradient() const { return gradient_; }
  const StepSeconds& seconds() const { return seconds_; }
  virtual std::int64_t buckets() const = 0;
  /// How the gradients of row-sparse parameters are sent, decided in the first step: "by rows, ..." or "whole, ...".
  /// Empty before the first step, and if there is nothing to decide.
  std::string row_choice() const;
  /// The same decisions for TrainState. take_row_decisions() before the first step makes it add gradients in the order
  /// of the earlier start.
  std::string row_decisions() const;
  void take_row_decisions(const std::string& decisions);
  /// "self", "mpi" or "nccl".
  virtual const char* backend() const = 0;

 protected:
  FlatGradient gradient_;
  StepSeconds seconds_;
  std::vector<RowExchange*> row_exchanges_;  ///< of the gradient's buckets
};

/// The step for a model's device and these options.
///
/// update  follows each gradient that stays on a GPU; null: nothing does. It must outlive the step.
/// errors  Error (usage): reproducible with a number of shards that is not a power of two; compression of f64; a
///         backend or graphs that the device does not offer
std::unique_ptr<ShardedStep> make_sharded_step(Communicator& comm, ShardModel& model, const StepOptions& options,
                                               const GpuUpdate* update = nullptr);

}  // namespace lockstep
