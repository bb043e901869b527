#pragma once
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "lockstep/device/kernel_arrays.hpp"
#include "lockstep/models/kgat/knowledge_graph.hpp"
#include "lockstep/ops/spmm.hpp"

namespace lockstep {

/// An ascending set of rows, in memory of the kernels and in memory of the host; on the CPU both are the same.
struct PlacedRows {
  PlacedRows(const ops::RowSet& both) : rows(both), host(both) {}  // NOLINT: implicit; a range needs no memory
  PlacedRows(const ops::RowSet& for_kernels, const ops::RowSet& for_host) : rows(for_kernels), host(for_host) {}
  /// The rows in [first, last).
  PlacedRows between(std::int64_t first, std::int64_t last) const;
  ops::RowSet rows, host;
};

/// The rows of each x_l on which a batch depends: in the last layer the batch, in each lower layer also the neighbours
/// of the rows above. No other row influences the batch's outputs or receives a gradient.
class NestedRows {
 public:
  /// nodes      ascending and distinct
  /// threshold  below the last layer, a set with more than this fraction of all nodes becomes the set of all nodes
  void build(const KgGraph& graph, int layers, std::span<const std::int32_t> nodes, double threshold);
  /// All rows in every layer.
  void build_all(const KgGraph& graph, int layers);
  /// Makes lists and bitmaps readable by the stream's kernels. On a GPU the arena holds the copies.
  void place(const Stream& stream, Arena& arena);
  /// All rows in every layer but the last. The last layer has the rows in this list and bitmap, which only kernels can
  /// read.
  void build_placed(const KgGraph& graph, int layers, std::span<const std::int32_t> list, ops::RowBits bits);
  /// l = 0 .. layers
  PlacedRows rows(int l) const {
    const Set& set = sets_[l];
    return set.all ? PlacedRows(set.rows) : PlacedRows(set.rows, ops::RowSet::list(set.list));
  }
  /// rows(l) as a bitmap; empty: all rows.
  ops::RowBits bits(int l) const { return sets_[l].placed_bits; }
  bool all(int l) const { return sets_[l].all; }

 private:
  struct Set {
    std::vector<std::uint64_t> bits;
    std::vector<std::int32_t> list;
    ops::RowSet rows;
    ops::RowBits placed_bits;  ///< empty: all
    bool all = false;
    void take_all(std::int64_t nodes);
  };
  std::deque<Set> sets_;
};

}  // namespace lockstep
