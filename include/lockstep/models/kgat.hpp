#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/data/kg_data.hpp"
#include "lockstep/device/kernel_arrays.hpp"
#include "lockstep/nn/params.hpp"
#include "lockstep/ops/aggregate.hpp"
#include "lockstep/ops/graph_attention.hpp"

namespace lockstep {

struct KgatArch {
  std::int64_t nodes = 0, relations = 0, edges = 0;  ///< edges: pattern entries of the graph
  std::int64_t embed_dim = 64, relation_dim = 64;
  std::vector<std::int64_t> conv_dims = {64, 32, 16};
  ops::Aggregator aggregator = ops::Aggregator::bi_interaction;
  double slope = 0.01;  ///< of LeakyReLU

  int layers() const { return static_cast<int>(conv_dims.size()); }
  /// Columns of x_l, l = 0 .. layers().
  std::int64_t width(int l) const { return l == 0 ? embed_dim : conv_dims[static_cast<std::size_t>(l - 1)]; }
  /// Columns of what ranks: all layers side by side.
  std::int64_t final_width() const;
};

/// How the propagation of a step is spread over the ranks. All give the same bits.
enum class KgatMode : std::uint8_t {
  replicate,      ///< every rank computes all rows; nothing is exchanged
  row_partition,  ///< a rank owns rows: it computes and updates them; before each product the rows are shared
  column_switch,  ///< dense parts by rows as above, products by columns of all rows, two all-to-alls each
  nested_rows,    ///< row_partition (on one rank: all rows are its own) of the rows that the batch depends on
};

/// Knowledge graph attention network: its parameters.
///
///   entity_user_embed.weight (N, d), relation_embed.weight (R, k), trans_M (R, d, k): U(-b, b), b = sqrt(6 / (rows +
///   columns)), of the cube sqrt(6 / ((d + R) k));  aggregator_layers.l.linear{,1,2}.{weight,bias}: weights by Xavier's
///   rule, biases U(-1/sqrt(in), 1/sqrt(in));  adjacency (edges), frozen: the attention, made by refresh_attention()
///
/// source   Wang, He, Cao, Liu, Chua 2019, arXiv:1905.07854
class Kgat {
 public:
  Kgat(KgatArch arch, DType dtype, std::uint64_t seed);
  const KgatArch& arch() const { return arch_; }
  ParamStore& params() { return params_; }
  const ParamStore& params() const { return params_; }
  const Param& embedding() const { return *embedding_; }
  const Param& translations() const { return *translations_; }
  const Param& matrices() const { return *matrices_; }
  const Param& adjacency() const { return *adjacency_; }
  /// Whether the parameter belongs to the ranking loss of interactions, to that of triples, or to both.
  bool ranks_items(const Param& p) const { return p.trainable && &p != translations_ && &p != matrices_; }
  bool ranks_triples(const Param& p) const { return &p == embedding_ || &p == translations_ || &p == matrices_; }
  /// Layer l = 0 .. layers()-1 with the weights in `flat`: values or gradients, laid out like the parameters from
  /// element `begin` of the flat vectors on.
  ops::AggregateLayer layer(int l, const Tensor& flat, std::int64_t begin = 0) const;
  /// The layer as operations read it: weights as the parameters are stored, biases (which are added to sums) as trained.
  ops::AggregateLayer layer(int l) const;
  /// All aggregators' weights lie in this range of the flat vector.
  std::int64_t aggregators_begin() const { return aggregators_begin_; }
  std::int64_t aggregators_end() const { return aggregators_end_; }

 private:
  KgatArch arch_;
  ParamStore params_;
  const Param *embedding_ = nullptr, *translations_ = nullptr, *matrices_ = nullptr, *adjacency_ = nullptr;
  struct Layer {
    const Param *weight1, *bias1, *weight2, *bias2;
  };
  std::vector<Layer> layers_;
  std::int64_t aggregators_begin_ = 0, aggregators_end_ = 0;
};

/// An ascending set of rows where the kernels read it, and where the host does: one and the same on a processor.
struct PlacedRows {
  PlacedRows(const ops::RowSet& both)
      : rows(both), host(both) {}  // NOLINT: implicit on purpose; a range is read by all
  PlacedRows(const ops::RowSet& for_kernels, const ops::RowSet& for_host) : rows(for_kernels), host(for_host) {}
  /// Those that lie in [first, last).
  PlacedRows between(std::int64_t first, std::int64_t last) const;
  ops::RowSet rows, host;
};

/// Rows that a batch needs of each x_l: those of the batch in the last layer, and with each layer further down their
/// neighbours too. Exact: nothing else has any influence on the batch's rows, nor a gradient.
class NestedRows {
 public:
  /// `nodes` ascending, each once. A set beyond `most` of all nodes becomes all of them.
  void build(const KgGraph& graph, int layers, std::span<const std::int32_t> nodes, double most = 0.7);
  /// Takes lists and bitmaps to where the stream's kernels read them; of a GPU that is the arena's memory.
  void place(const Stream& stream, Arena& arena);
  /// l = 0 .. layers
  PlacedRows rows(int l) const {
    const Set& set = sets_[static_cast<std::size_t>(l)];
    return set.all ? PlacedRows(set.rows) : PlacedRows(set.rows, ops::RowSet::list(set.list));
  }
  /// The same as a bitmap; empty: all.
  ops::RowBits bits(int l) const { return sets_[static_cast<std::size_t>(l)].placed_bits; }
  bool all(int l) const { return sets_[static_cast<std::size_t>(l)].all; }

 private:
  struct Set {
    std::vector<std::uint64_t> bits;
    std::vector<std::int32_t> list;
    ops::RowSet rows;
    ops::RowBits placed_bits;  ///< empty: all
    bool all = false;
  };
  std::deque<Set> sets_;
};

/// The layers' values and gradients over a graph, computed in pieces that name a layer and some rows, so that all rows,
/// those of a batch or those of one rank can be asked for alike. No piece communicates.
///
///   s_l = A x_l,   x_{l+1} = aggregate(x_l, s_l),   n_l = x_l / max(|x_l|, 1e-12),   H = [x_0, n_1, ..., n_L]
///
/// Every array has a row for each node, and holds values in the rows that have been asked for.
class KgatPropagation {
 public:
  /// What is random in a training step: everything is keyed by (seed, step) and by global node or edge.
  struct Noise {
    std::span<const double> message_dropout;  ///< per layer
    double node_dropout = 0;                  ///< of edges
    std::uint64_t seed = 0, step = 0;
  };
  /// On the device of the network's parameters, where a GPU also gets its copy of the graph.
  ///
  /// `storage` bf16 or f16: products with the adjacency read x_l rounded to it, half the bytes. Parameters that are stored
  /// as halves (ParamStore::store_as) have the dense products of the layers read and write such; all else is in the
  /// network's type, f32 then.
  KgatPropagation(Kgat& net, const KgGraph& graph, std::optional<DType> storage = {});

  /// Call when the adjacency's values have changed.
  void adjacency_changed();
  /// Starts a pass with these drops, or with none.
  void begin(const Noise* noise);

  /// Call before layer l, when x_l has its values in these rows: all that its product reads.
  void store(int l, const ops::RowSet& rows);
  /// What the product of layer l reads.
  const Tensor& stored(int l) const { return rounded_.view() ? rounded_now_ : x(l); }
  /// On a GPU: what is computed from rows of different segments of the nodes is computed apart from now on. A product's bits
  /// depend on how many rows it has there; those of a segment are the same whoever computes it.
  ///
  /// shapes  segments (k + 1) ascending bounds that hold all nodes
  void compute_apart(std::vector<std::int64_t> segments) { apart_ = std::move(segments); }
  /// s_l of these rows, then x_{l+1} of them: in two pieces, or block by block in one.
  void product(int l, const ops::RowSet& rows);
  void aggregate(int l, const PlacedRows& rows);
  void forward(int l, const PlacedRows& rows);
  /// From dx_{l+1} of these rows: ds_l and dx_l of them, and the weights' gradients of segment i of the nodes added to row
  /// i of `sums`. On a processor a row whose dx_{l+1} is zero may be left out: it changes no bit of them.
  ///
  /// shapes  segments (k + 1) ascending bounds that hold all rows; sums (k, elements of the aggregators)
  void aggregate_backward(int l, const PlacedRows& rows, std::span<const std::int64_t> segments, const Tensor& sums);
  /// dx_l of these rows += A' ds_l, where only the rows in `from` of ds_l hold something.
  void product_backward(int l, const ops::RowSet& rows, ops::RowBits from);

  /// Rows of H, one for each node. Here and in scatter() the list lies where the kernels can read it.
  void gather(std::span<const std::int32_t> nodes, const Tensor& h) const;
  /// Adds to dx_l, for one l, what comes from dH of these nodes (each once). Rows of dx_l must hold something already.
  void scatter(int l, std::span<const std::int32_t> nodes, const Tensor& dh) const;

  /// x_0 is the embedding; dx_0 is set by the owner of the gradient.
  const Tensor& x(int l) const { return x_[static_cast<std::size_t>(l)]; }
  const Tensor& s(int l) const { return s_[static_cast<std::size_t>(l)]; }
  const Tensor& dx(int l) const { return dx_[static_cast<std::size_t>(l)]; }
  Tensor ds(int l) const;
  void set_dx0(const Tensor& dx0) { dx_[0] = dx0; }
  const Kgat& net() const { return net_; }
  const KgGraph& graph() const { return graph_; }
  ops::CsrPattern pattern() const { return {indptr_.span(), column_.span()}; }
  /// Values of the edges in this pass, and of their opposites.
  const Tensor& values() const { return values_now_; }
  const Tensor& transposed_values() const { return transposed_now_; }

 private:
  ops::AggregateLayer noisy_layer(int l) const;
  ops::AggregateRows arrays(int l) const;
  void drop_edges();
  Stream stream() const { return Stream(net_.params().device()); }
  /// Runs work(arena, rows) for pieces of the rows, on a processor shared among its threads.
  template <class Work>
  void in_pieces(const PlacedRows& rows, const Work& work);
  /// The same for a GPU, piece by piece.
  template <class Work>
  void in_blocks(const ops::RowSet& rows, const Work& work);

  Kgat& net_;
  const KgGraph& graph_;
  Resident<std::int64_t> indptr_, transpose_;  ///< of the graph's pattern
  Resident<std::int32_t> column_;
  std::vector<std::int64_t> apart_;  ///< bounds of segments, or nothing
  std::optional<Noise> noise_;
  OwnedTensor transposed_, dropped_, dropped_transposed_;
  Tensor values_now_, transposed_now_;
  OwnedTensor rounded_;  ///< (N, widest layer), or nothing
  Tensor rounded_now_;
  std::deque<OwnedTensor> storage_;
  std::vector<Tensor> x_, s_, marks_, dx_;
  OwnedTensor ds_;
  std::deque<Arena> arenas_;  ///< per thread
};

/// Distinct heads and tails of each relation: what attention projects; and the memory that it takes, kept from one
/// refresh to the next. All of it lies where the device's kernels read it.
class AttentionPlan {
 public:
  /// Of the triples whose head is in [first, last), computed in `dtype`.
  AttentionPlan(const KgGraph& graph, std::int64_t first, std::int64_t last, DType dtype, Device device = {});
  ops::RelationTriples of(std::int64_t relation) const;
  /// Of the graph: entries of each row, triples of each entry.
  std::span<const std::int64_t> row_ptr() const { return row_ptr_.span(); }
  std::span<const std::int64_t> edge_ptr() const { return edge_ptr_.span(); }
  std::int64_t first() const { return first_; }
  std::int64_t last() const { return last_; }
  /// For projections.
  Arena& scratch() const { return *scratch_; }
  /// v of each triple of the graph, after a refresh of those that are planned. shapes (triples)
  const Tensor& logits() const { return logits_; }

 private:
  std::int64_t first_, last_;
  std::vector<std::int64_t> triple_ptr_, head_ptr_, tail_ptr_;
  Resident<std::int64_t> place_, row_ptr_, edge_ptr_;
  Resident<std::int32_t> heads_, tails_, head_slot_, tail_slot_;
  std::unique_ptr<Arena> scratch_;
  OwnedTensor logits_;
};

/// Recomputes the adjacency of the plan's rows from the present embeddings: A_ht = sum over the triples from h to t of
/// softmax_h(v). Projections read and write what the parameters are stored as, logits and softmax are real.
void refresh_attention(Kgat& net, const KgGraph& graph, const AttentionPlan& plan, ops::ParallelEdges parallel);

}  // namespace lockstep
