#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/comm/tree_reduce.hpp"
#include "lockstep/models/kgat.hpp"
#include "lockstep/models/kgat_batch.hpp"
#include "lockstep/ops/bpr.hpp"
#include "lockstep/optim/lazy_adam.hpp"
#include "lockstep/train/sharded_step.hpp"
#include "train/graph_exchange.hpp"

namespace lockstep {

struct KgatStepOptions {
  KgatMode mode = KgatMode::nested_rows;
  std::int64_t segments = 16;  ///< dist.shards: of nodes, in the sums of the weights' gradients
  double cf_l2 = 1e-5, kg_l2 = 1e-5;
  std::vector<double> message_dropout;  ///< per layer, or empty
  double node_dropout = 0;
  std::uint64_t seed = 0;     ///< of the dropout
  bool reproducible = false;  ///< on GPUs: `replicate` has the bits of the modes that partition the nodes
  ops::ParallelEdges parallel_edges = ops::ParallelEdges::per_triple;
  double clip_norm = 0;                  ///< 0: off
  Backend backend = Backend::automatic;  ///< of what GPUs exchange
  double timeout_s = 0;                  ///< of NCCL; 0: for ever
  OptimizerOptions optimizer = {};
};

/// What a step found: the same on all ranks, but for the seconds. Nothing is updated when it is not finite.
struct KgatStepSums {
  ops::RankingSums sums;  ///< over the batch
  double loss = 0;        ///< mean over the batch, with its penalties
  double norm = 0;        ///< of the gradient
  unsigned flags = 0;
  double compute = 0, exchange = 0, update = 0;  ///< wall seconds of this rank
  bool finite() const;
};

/// The steps of KGAT's training on the ranks of a communicator: ranking of items, ranking of triples, attention. A step
/// is collective; every rank gives the whole batch, and the same bits come out on any number of ranks and threads, in
/// any mode.
///
/// Sums over nodes go over fixed segments of nodes in ascending order and then in one binary tree over the segments;
/// sums over a batch go in the order of the batch. Each loss has an Adam of its own; the embeddings belong to both.
///
/// On GPUs too, but for two things. `replicate`, where no rank's sums have to match another's, adds up all nodes at once
/// unless options.reproducible; and the bits of a product may depend on its shape: nested_rows, which leaves rows out, may
/// have bits of its own (the same on any number of ranks), column_switch agrees to rounding.
class KgatSteps {
 public:
  /// On the device of the parameters.
  ///
  /// errors  Error (usage): options that the lazy form of Adam does not take; column_switch between GPUs with reproducible
  KgatSteps(Communicator& comm, Kgat& net, KgatPropagation& propagation, const KgatStepOptions& options);

  /// One update of embeddings and aggregators. `number` keys the dropout.
  KgatStepSums rank_items(const CfBatch& batch, std::int64_t number, double lr, unsigned flags = 0);
  /// One update of embeddings, translations and matrices.
  KgatStepSums rank_triples(const KgBatch& batch, double lr, unsigned flags = 0);
  /// New attention from the embeddings as they are now.
  void refresh();
  /// Weights, attention and optimizers' vectors become complete on this rank.
  void settle();
  /// After weights and optimizers have been read from a checkpoint.
  void restored();

  Optimizer& items_optimizer() { return adam_cf_; }
  Optimizer& triples_optimizer() { return adam_kg_; }
  GraphExchange& exchange() { return exchange_; }
  const GraphExchange& exchange() const { return exchange_; }
  /// Gradient of the last rank_items(): of the embeddings, in the rows that this rank owns, and of the aggregators.
  const Tensor& embedding_gradient() const { return dx0_; }
  const Tensor& aggregator_gradient() const { return gradient_; }
  /// Gradient of the last rank_triples(): of the batch's rows() and relations.
  struct TriplesGradient {
    Tensor nodes;         ///< (rows, d)
    Tensor matrices;      ///< (relations, d k)
    Tensor translations;  ///< (relations, k)
  };
  const TriplesGradient& triples_gradient() const { return triples_gradient_; }

 private:
  /// What the chunks of a batch of triples leave.
  struct ChunkResults {
    Tensor rows;                       ///< (3M, d), chunk by chunk: its heads, tails, other tails
    Tensor relations;                  ///< (chunks, d k + k): matrix, then translation
    std::span<ops::RankingSums> sums;  ///< (chunks)
  };
  /// The memory of the step that begins. A step waits for its GPU once, in its middle, so that at the end of the next
  /// one's middle nothing reads its memory any more: two arenas take turns.
  Arena& next_arena();
  /// Memory that the host may touch.
  template <class T>
  static std::span<T> on_host(Arena& arena, std::int64_t count) {
    return {static_cast<T*>(arena.host().allocate(static_cast<std::size_t>(count) * sizeof(T))),
            static_cast<std::size_t>(count)};
  }
  bool on_gpu() const { return stream_.device().is_cuda(); }
  /// Nodes whose attention this rank computes: its own. On a GPU all, so that products have the same shapes everywhere.
  std::pair<std::int64_t, std::int64_t> attended() const;
  /// `nodes`: the batch's rows.
  void forward(const PlacedRows& nodes);
  void backward(const CfBatch& batch, std::span<const std::int32_t> nodes, const Tensor& dh);
  /// The weights' gradient from its sums over the own segments.
  void sum_segments(const Tensor& sums);
  /// Steps done: the number of the one under way.
  std::int64_t steps_done() const { return adam_cf_.steps() + adam_kg_.steps(); }
  double square_norm(unsigned& flags);
  void update_items(double lr, double scale);

  void rank_chunks(const ops::RelationSamples& batch, ShardRange which, const ChunkResults& results);
  void gather_chunks(const KgBatch& batch, const ChunkResults& results);
  /// Uses of each of a batch's rows: where they lie among the chunks' rows.
  struct Uses {
    std::span<const std::int64_t> ptr, place;
  };
  /// Sums the uses of each row and the chunks of each relation; the norm of all of it.
  double sum_chunks(const ChunkResults& results, const Uses& uses, std::span<const std::int64_t> relation_chunks);
  /// Those of an ascending list that this rank owns: where they begin, and how many.
  ShardRange own_part(std::span<const std::int32_t> nodes) const;
  void find_embeddings(const PlacedRows& rows);
  /// Segments of the nodes whose rows this rank computes.
  ShardRange own_segments() const;
  /// Where they begin, and where the last one ends.
  std::vector<std::int64_t> bounds(ShardRange segments) const;

  Communicator& comm_;
  Stream stream_;
  Kgat& net_;
  const KgGraph& graph_;
  KgatStepOptions options_;
  GraphExchange exchange_;
  const bool by_segments_;  ///< how sums over nodes are made
  KgatPropagation& propagation_;
  NestedRows rows_;
  LazyAdam adam_cf_, adam_kg_;
  AttentionPlan plan_;
  std::vector<const Param*> aggregators_;
  bool embeddings_spread_ = false;  ///< rows of the embedding are right on their owners alone
  OwnedTensor gradients_;           ///< both of these; the gap between them stays 0
  Tensor dx0_;                      ///< (N, d)
  Tensor gradient_;                 ///< (aggregators' elements)
  OwnedTensor segment_sums_;        ///< (segments, aggregators' elements)
  TriplesGradient triples_gradient_;
  std::vector<std::int64_t> places_;  ///< where the uses of a batch of triples lie among its chunks' rows
  std::array<Arena, 2> arenas_;
  Arena* arena_ = nullptr;  ///< of the last step
};

}  // namespace lockstep
