#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/device/kernel_arrays.hpp"
#include "lockstep/models/kgat/kgat.hpp"
#include "lockstep/models/kgat/nested_rows.hpp"

namespace lockstep {

/// The rows of the node tables that this process computes. This class: all rows. GraphExchange spreads them over ranks.
class RowOwner {
 public:
  virtual ~RowOwner() = default;
  /// The rows of an ascending set that this process computes.
  virtual PlacedRows own(const PlacedRows& rows) const { return rows; }
  /// Fetches the other rows of the set from the ranks that computed them. Collective.
  virtual void share(const Tensor& /*table*/, const PlacedRows& /*rows*/, const char* /*what*/) {}
};

/// Values and gradients of the layers over a graph:
///
///   s_l = A x_l,   x_{l+1} = aggregate(x_l, s_l),   n_l = x_l / max(|x_l|, 1e-12),   H = [x_0, n_1, ..., n_L]
///
/// Every array has a row for each node; only the rows that a pass computes hold values.
class KgatPropagation {
 public:
  /// The random numbers of a training step are functions of (seed, step) and of the global node or edge.
  struct Noise {
    std::span<const double> message_dropout;  ///< per layer
    double node_dropout = 0;                  ///< of edges
    std::uint64_t seed = 0, step = 0;
    const std::uint64_t* step_on_gpu = nullptr;  ///< as in ops::Dropout
  };
  /// On the device of the network's parameters; a GPU receives a copy of the graph.
  ///
  /// storage  bf16 or f16: products with the adjacency read x_l rounded to this type, half the bytes. If parameters are
  ///          stored as halves (ParamStore::store_as), the dense products of the layers read and write halves;
  ///          everything else is f32.
  KgatPropagation(Kgat& net, const KgGraph& graph, std::optional<DType> storage = {});

  /// Call it when the adjacency's values have changed.
  void adjacency_changed();
  /// Starts a pass with this dropout; null: without dropout.
  void begin(const Noise* noise);
  /// On a GPU: from now on, each segment of the nodes has separate dense products. The bits of a product may depend on
  /// its number of rows; a segment's product then has the same bits on every rank.
  ///
  /// shapes  segments (k + 1) ascending bounds that hold all nodes
  void separate(std::vector<std::int64_t> segments) { separate_ = std::move(segments); }

  /// Puts the tables of passes with noise into this memory, which several processes share: each process writes the rows
  /// that it owns, and all read them there after `owner.share()`, which only synchronises. An empty span ends this.
  /// The caller keeps the memory, aligned to 64 bytes, and waits for the other processes between two passes.
  void share_tables(std::span<std::byte> memory);
  /// The bytes that share_tables() needs.
  std::size_t shared_bytes() const;

  /// Computes x_1 .. x_L. Layer l reads rows.rows(l) of x_l, of which x_0 must be complete. If tables are shared, the
  /// own rows of x_0 suffice.
  void forward(const NestedRows& rows, RowOwner& owner);
  /// Computes x_1 .. x_L of all nodes in this process.
  void forward();
  /// Computes the gradient of x_0 in all rows that this process owns, and adds the weights' gradients of segment i of
  /// the nodes to row i of `sums`. On the CPU a row whose gradient is zero changes no bit of the sums.
  ///
  /// shapes  nodes: the rows of H with a gradient that this process owns, each once, readable by the kernels;
  ///         dh (nodes, final_width()); segments (k + 1) ascending bounds that hold all own rows; sums (k, elements of
  ///         the aggregators)
  void backward(const NestedRows& rows, RowOwner& owner, std::span<const std::int32_t> nodes, const Tensor& dh,
                std::span<const std::int64_t> segments, const Tensor& sums);
  /// Copies rows of H, one for each node of the list, to `h`. The kernels must be able to read the list.
  void gather(std::span<const std::int32_t> nodes, const Tensor& h) const;

  /// Rounds these rows of x_l into the table that the product of layer l reads.
  void store(int l, const ops::RowSet& rows);
  /// The table that the product of layer l reads.
  const Tensor& stored(int l) const { return rounded_.view() ? rounded_now_ : x(l); }
  /// x_0 is the embedding.
  const Tensor& x(int l) const { return (in_shared_ ? shared_x_ : x_)[l]; }
  const Tensor& s(int l) const { return s_[l]; }
  /// Sets the array for the gradient of x_0, which backward() writes. shapes (N, d)
  void set_dx0(const Tensor& dx0) { dx_[0] = dx0; }
  const KgGraph& graph() const { return graph_; }
  ops::CsrPattern pattern() const { return {indptr_.span(), column_.span()}; }
  /// Values of the edges in this pass.
  const Tensor& values() const { return values_now_; }

 private:
  void aggregate_forward(int l, const PlacedRows& rows);
  void aggregate_backward(int l, const PlacedRows& rows, std::span<const std::int64_t> segments, const Tensor& sums);
  /// Adds the contribution of dH of these nodes to dx_l. These rows of dx_l must already be set.
  void scatter(int l, std::span<const std::int32_t> nodes, const Tensor& dh) const;
  ops::AggregateLayer noisy_layer(int l) const;
  ops::AggregateRows arrays(int l) const;
  Tensor ds(int l) const;
  std::size_t table_bytes(std::int64_t columns) const;
  void drop_edges();
  Stream stream() const { return Stream(net_.params().device()); }
  /// Runs work(arena, rows) for chunks of the rows, on the CPU shared among its threads.
  template <class Work>
  void in_chunks(const PlacedRows& rows, const Work& work);
  /// Like in_chunks(), but on a GPU, one chunk after another.
  template <class Work>
  void in_gpu_chunks(const ops::RowSet& rows, const Work& work);

  Kgat& net_;
  const KgGraph& graph_;
  Resident<std::int64_t> indptr_, transpose_;  ///< of the graph's pattern
  Resident<std::int32_t> column_;
  std::vector<std::int64_t> separate_;  ///< bounds of segments; empty: one product
  std::optional<Noise> noise_;
  OwnedTensor transposed_, dropped_, dropped_transposed_;
  Tensor values_now_, transposed_now_;
  OwnedTensor rounded_;  ///< (N, widest layer), or nothing
  Tensor rounded_now_;
  std::deque<OwnedTensor> storage_;
  std::vector<Tensor> x_, s_, marks_, dx_;
  OwnedTensor ds_;
  /// Shared tables; empty if not shared. Each layer has a separate ds: others may still read the previous layer's.
  std::vector<Tensor> shared_x_, shared_ds_;
  bool in_shared_ = false;    ///< this pass uses them
  std::deque<Arena> arenas_;  ///< per thread
};

}  // namespace lockstep
