#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/comm/tree_reduce.hpp"
#include "lockstep/comm/world.hpp"
#include "lockstep/device/event.hpp"
#include "lockstep/device/kernel_arrays.hpp"
#include "lockstep/models/kgat/kgat_attention.hpp"
#include "lockstep/ops/bpr.hpp"
#include "lockstep/optim/gpu_update.hpp"
#include "lockstep/optim/lazy_adam.hpp"
#include "lockstep/step/graph_replay.hpp"
#include "lockstep/step/sharded_step.hpp"
#include "lockstep/tasks/kgat/kgat_sampler.hpp"
#include "lockstep/tasks/kgat/kgat_task.hpp"
#include "tasks/kgat/graph_exchange.hpp"

namespace lockstep {

struct KgatStepOptions {
  KgatMode mode = KgatMode::nested_rows;
  double row_threshold = 0.7;  ///< of nested_rows
  std::int64_t segments = 16;  ///< dist.shards: segments of nodes whose weight gradients are summed
  double cf_l2 = 1e-5, kg_l2 = 1e-5;
  std::vector<double> message_dropout;  ///< per layer, or empty
  double node_dropout = 0;
  std::uint64_t seed = 0;     ///< of the dropout
  bool reproducible = false;  ///< on GPUs: `replicate` sums by segments, as nested_rows does
  ops::ParallelEdges parallel_edges = ops::ParallelEdges::per_triple;
  double clip_norm = 0;                  ///< 0: off
  Backend backend = Backend::automatic;  ///< of transfers between GPUs
  Graphs graphs = Graphs::automatic;     ///< of steps that run on a GPU alone
  double timeout_s = 0;                  ///< of NCCL; 0: none
  World* world = nullptr;                ///< of the ranks; if all are on one host, they share tables of nodes
  OptimizerOptions optimizer = {};
};

/// The outcome of a step: the same on all ranks, except for the seconds. A step that is not finite updates nothing.
struct KgatStepResult {
  std::int64_t step = 0;  ///< as passed to start_cf() or start_kg()
  bool is_cf = false;
  ops::RankingSums sums = {};  ///< over the batch
  double loss = 0;             ///< mean over the batch, with its penalties
  double norm = 0;             ///< of the gradient
  unsigned flags = 0;
  std::int64_t samples = 0;                      ///< of the batch
  double compute = 0, exchange = 0, update = 0;  ///< wall seconds of this rank
  bool finite() const;
};

/// A training step of KGAT on the ranks of a communicator. The graph is one object that all samples share, and two
/// losses alternate: step_cf() trains on interactions (collaborative filtering), step_kg() on triples of the knowledge
/// graph, each with an Adam of its own. Both update the embeddings. Steps are collective; every rank passes the whole
/// batch.
///
/// Sums over nodes go over fixed segments of nodes in ascending order and then through one binary tree over the
/// segments; sums over a batch go in the order of the batch. On CPUs both modes, with any row_threshold, give the same
/// bits on any number of ranks and threads.
///
/// On GPUs each mode gives the same bits on any number of ranks, but the two agree to rounding only: `replicate` sums
/// over all nodes at once unless options.reproducible is set, and the bits of a dense product may depend on its number
/// of rows. With row_threshold = 0, nested_rows has the bits of `replicate` with options.reproducible.
///
/// If every rank computes all rows (`replicate`) and nothing is summed by segments, a GPU runs a whole step, update
/// included, and the host only enqueues, as a graph after the first steps:
///
///   step.start_cf(batch, number, lr, flags);    // returns while the GPU works
///   const auto before = step.take(false);       // the outcome of the step before
class KgatStep {
 public:
  /// On the device of the parameters.
  /// errors  Error (usage): options that LazyAdam does not support; graphs = on if a GPU does not run whole steps
  KgatStep(Communicator& comm, Kgat& net, KgatPropagation& propagation, const KgatStepOptions& options);
  KgatStep(const KgatStep&) = delete;
  KgatStep& operator=(const KgatStep&) = delete;
  ~KgatStep();

  /// Whether start and take() may be used.
  bool runs_on_gpu() const { return on_gpu() && options_.mode == KgatMode::replicate && !by_segments_; }
  /// Enqueues a step. Take the outcomes of earlier steps first, except that of a step before of the same kind.
  void start_cf(const CfBatch& batch, std::int64_t number, double lr, unsigned flags = 0);
  void start_kg(const KgBatch& batch, std::int64_t number, double lr, unsigned flags = 0);
  /// The same with samples that the GPU draws from tables in its memory; without a draw they are the source's columns
  /// in host memory.
  void start_cf(ops::PairSource source, const std::optional<ops::PoolDraw>& draw, std::int64_t number, double lr,
                unsigned flags = 0);
  void start_kg(ops::TripleSource source, const std::optional<ops::PoolDraw>& draw, std::int64_t number, double lr,
                unsigned flags = 0);
  /// Waits for the oldest step whose outcome was not returned yet and returns it; unless `last` is set, not for the
  /// step that was started last. Returns nothing if there is no such step. A step that is not finite updates nothing,
  /// nor does the next one. errors  Error if the GPU failed
  std::optional<KgatStepResult> take(bool last);

  /// One update of embeddings and aggregators. `number` keys the dropout.
  KgatStepResult step_cf(const CfBatch& batch, std::int64_t number, double lr, unsigned flags = 0);
  /// One update of embeddings, translations and matrices.
  KgatStepResult step_kg(const KgBatch& batch, double lr, unsigned flags = 0);
  /// Recomputes the adjacency from the embeddings.
  void refresh_adjacency();
  /// Completes weights, attention and optimizers' vectors on this rank: applies deferred updates, fetches other ranks'
  /// rows.
  void settle();
  /// Call after reading weights and optimizers from a checkpoint.
  void restored();

  Optimizer& cf_optimizer() { return adam_cf_; }
  Optimizer& kg_optimizer() { return adam_kg_; }
  GraphExchange& exchange() { return exchange_; }
  const GraphExchange& exchange() const { return exchange_; }
  /// Gradient of the last step_cf(): of the embeddings, in the rows that this rank owns, and of the aggregators.
  const Tensor& embedding_gradient() const { return dx0_; }
  const Tensor& aggregator_gradient() const { return gradient_; }
  /// Gradient of the last step_kg(): of the batch's rows() and relations, then padding if the GPU drew the batch.
  struct KgGradient {
    Tensor nodes;         ///< (rows, d)
    Tensor matrices;      ///< (relations, d k)
    Tensor translations;  ///< (relations, k)
  };
  const KgGradient& kg_gradient() const { return kg_gradient_; }

 private:
  /// The memory that host and GPU exchange in one step of a kind, besides the arena's pinned memory. The other half
  /// belongs to the steps before and after it.
  struct Half {
    explicit Half(Device device) : end(device) {}
    Buffer outcome = Buffer::pinned(sizeof(GpuOutcome) + sizeof(ops::RankingSums));
    Event end;                           ///< of its last step
    KgGradient kg_gradient;              ///< of its last step on triples, padding rows included
    std::optional<KgatStepResult> open;  ///< of the step whose outcome was not returned by take() yet
    GpuOutcome* gpu() const { return reinterpret_cast<GpuOutcome*>(outcome.data()); }
    ops::RankingSums* sums() const { return reinterpret_cast<ops::RankingSums*>(outcome.data() + sizeof(GpuOutcome)); }
  };
  /// Steps on interactions, or steps on triples.
  struct Kind {
    explicit Kind(Device device) : arena(device), halves{Half(device), Half(device)} {}
    Arena arena;
    std::array<Half, 2> halves;
    std::size_t turn = 0;  ///< half of the last step
  };
  /// The half of the next step, and whether the step before is open.
  std::pair<Half*, int> next_half(std::size_t kind);
  /// Runs a step's work, as a graph if batch size, memory and the table that the GPU draws from (or null) are those of
  /// earlier steps.
  void run(std::int64_t size, const void* drawn_from, const Staged& staged, const std::function<void()>& enqueue);
  void end_step(Half& half, const KgatStepResult& open);
  /// The mean loss of a batch.
  static double mean_loss(const ops::RankingSums& sums, double l2, std::int64_t count) {
    return (sums.loss + l2 * sums.half_square) / static_cast<double>(count);
  }

  /// Starts the memory of a step. A step waits for its GPU once, in its middle. So nothing reads a step's memory any
  /// more when the step after the next starts: the memory is double-buffered.
  Arena& next_arena();
  bool on_gpu() const { return stream_.device().is_cuda(); }
  /// Nodes whose attention this rank computes: its own. On a GPU all, so that products have the same shapes on every
  /// rank.
  ShardRange attended() const;
  /// Puts the tables that ranks read from each other into memory that they share, if there is enough.
  void share_tables();
  /// The range of an ascending list of nodes that this rank owns.
  ShardRange own_range(std::span<const std::int32_t> nodes) const;
  ShardRange own_segments() const;
  /// The first nodes of the segments, and the end of the last one.
  std::vector<std::int64_t> bounds(ShardRange segments) const;
  /// Completes these rows of the embeddings.
  void fetch_embeddings(const PlacedRows& rows);
  /// The number of the current step.
  std::int64_t steps_done() const { return adam_cf_.steps() + adam_kg_.steps(); }

  // step_cf()
  /// Fills dx0_ and gradient_ from the gradient of the own rows of H among those of the batch.
  void backward_cf(const ShardRange& own, std::span<const std::int32_t> nodes, const Tensor& dh);
  /// The weights' gradient from its sums over the own segments.
  void sum_segments(const Tensor& sums);
  double norm_cf() const;
  void update_cf(double lr, double scale);

  // step_kg()
  /// Results of the chunks of a batch of triples.
  struct ChunkResults {
    Tensor rows;                       ///< (3M, d), chunk by chunk: its heads, tails, other tails
    Tensor relations;                  ///< (chunks, d k + k): matrix, then translation
    std::span<ops::RankingSums> sums;  ///< (chunks)
  };
  void compute_chunks(const ops::RelationSamples& batch, ShardRange which, const ChunkResults& results);
  /// Fetches the other ranks' chunks.
  void share_chunks(const KgBatch& batch, const ChunkResults& results);
  /// The uses of each of a batch's rows: their indices among the chunks' rows.
  struct Uses {
    std::span<const std::int64_t> ptr, place;
  };
  /// Fills kg_gradient_: sums the uses of each row in the order of the batch, and the chunks of each relation in
  /// theirs. Returns it as one array, in the memory of the step.
  Tensor sum_chunks(Arena& arena, const ChunkResults& results, const Uses& uses,
                    std::span<const std::int64_t> relation_chunks);

  Communicator& comm_;
  Stream stream_;
  Kgat& net_;
  const KgGraph& graph_;
  KgatStepOptions options_;
  GraphExchange exchange_;
  const bool by_segments_;  ///< sums over nodes go by segments; else over all nodes at once
  KgatPropagation& propagation_;
  std::shared_ptr<NodeMemory> shared_;  ///< tables of the propagation, or null
  NestedRows rows_;
  LazyAdam adam_cf_, adam_kg_;
  AttentionPlan plan_;
  std::vector<const Param*> aggregators_;
  bool embeddings_spread_ = false;  ///< only the owners' rows of the embeddings are current
  OwnedTensor gradients_;           ///< dx0_ and gradient_ in the layout of the parameters; the rest stays 0
  Tensor dx0_;                      ///< (N, d)
  Tensor gradient_;                 ///< (aggregators' elements)
  OwnedTensor segment_sums_;        ///< (segments, aggregators' elements)
  KgGradient kg_gradient_;
  std::vector<std::int64_t> places_;  ///< indices of the uses of a batch of triples among its chunks' rows
  std::array<Arena, 2> arenas_;
  Arena* arena_ = nullptr;  ///< of the last step
  // Of steps that run on a GPU alone:
  std::optional<GpuUpdate> update_cf_, update_kg_;
  std::int64_t kg_elements_ = 0;  ///< of the gradient that update_kg_ expects
  std::int64_t kg_updates_ = 0;   ///< how often update_kg_ was made
  std::size_t kind_ = 0;          ///< of the last step
  std::vector<Kind> kinds_;       ///< steps on interactions, steps on triples
  std::optional<GraphReplay> graphs_;
};

}  // namespace lockstep
