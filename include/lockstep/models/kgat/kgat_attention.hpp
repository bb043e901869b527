#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/device/kernel_arrays.hpp"
#include "lockstep/models/kgat/kgat.hpp"
#include "lockstep/models/kgat/knowledge_graph.hpp"
#include "lockstep/ops/graph_attention.hpp"

namespace lockstep {

/// The distinct heads and tails of each relation, which attention projects, and memory for the projections, reused by
/// every refresh. Kernels of the device can read all of it.
class AttentionPlan {
 public:
  /// For the triples whose head is in [first, last), computed in `dtype`.
  AttentionPlan(const KgGraph& graph, std::int64_t first, std::int64_t last, DType dtype, Device device = {});
  ops::RelationTriples of(std::int64_t relation) const;
  /// CSR offsets of the graph: entries of each row, triples of each entry.
  std::span<const std::int64_t> row_ptr() const { return row_ptr_.span(); }
  std::span<const std::int64_t> edge_ptr() const { return edge_ptr_.span(); }
  std::int64_t first() const { return first_; }
  std::int64_t last() const { return last_; }
  /// Memory for projections.
  Arena& scratch() const { return *scratch_; }
  /// The logit v of each triple of the graph; a refresh updates the planned triples. shapes (triples)
  const Tensor& logits() const { return logits_; }

 private:
  std::int64_t first_, last_;
  std::vector<std::int64_t> triple_ptr_, head_ptr_, tail_ptr_;
  Resident<std::int64_t> place_, row_ptr_, edge_ptr_;
  Resident<std::int32_t> heads_, tails_, head_slot_, tail_slot_;
  std::unique_ptr<Arena> scratch_;
  OwnedTensor logits_;
};

/// Recomputes the adjacency of the plan's rows from the embeddings: A_ht = sum over the triples from h to t of
/// softmax_h(v). Projections read and write the type in which the parameters are stored; logits and softmax have the
/// network's type.
void refresh_attention(Kgat& net, const KgGraph& graph, const AttentionPlan& plan, ops::ParallelEdges parallel);

}  // namespace lockstep
