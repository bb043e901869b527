#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// The nodes of a graph in contiguous segments of about equal work, and the segments that each rank owns. The segments
/// depend on the graph alone, so sums over them are the same on any number of ranks.
class NodeCut {
 public:
  /// Work of a row besides its entries, in units of an entry: the cost of dense products, element-wise work and update,
  /// divided by that of an entry in a sparse product. Measured with layers of 64, 64, 32 and 16 columns on a processor
  /// with AVX-512: 75 over all nodes of kgat-ml1m. There two ranks would have equal times at 40, because the entries of
  /// the first rows are more expensive: they read all parts of the table.
  static constexpr std::int64_t kRowCost = 48;
  /// shapes  indptr (nodes + 1), 64-bit: correct for up to 2^62 entries
  /// errors  Error if `segments` or `ranks` is not positive
  NodeCut(std::span<const std::int64_t> indptr, std::int64_t segments, int ranks);
  std::int64_t segments() const { return static_cast<std::int64_t>(begin_.size()) - 1; }
  std::int64_t nodes() const { return begin_.back(); }
  int ranks() const { return static_cast<int>(first_segment_.size()) - 1; }
  /// Nodes of segment s: [begin(s), begin(s + 1)).
  std::int64_t begin(std::int64_t s) const { return begin_[static_cast<std::size_t>(s)]; }
  /// Segments of rank r: [first_segment(r), first_segment(r + 1)), and their nodes.
  std::int64_t first_segment(int r) const { return first_segment_[static_cast<std::size_t>(r)]; }
  std::int64_t first(int r) const { return begin(first_segment(r)); }
  std::int64_t last(int r) const { return begin(first_segment(r + 1)); }

 private:
  std::vector<std::int64_t> begin_, first_segment_;
};

}  // namespace lockstep
