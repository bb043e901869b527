#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/models/kgat.hpp"
#include "train/device_exchange.hpp"

namespace lockstep {

/// The nodes of a graph in contiguous segments of about equal work, and which of them each rank owns. The segments
/// depend on the graph alone, so that sums over them can be the same on any number of ranks.
class NodeCut {
 public:
  /// A row of the adjacency costs its entries and this many more: the dense part of a layer.
  static constexpr std::int64_t kRowCost = 16;
  /// shapes  indptr (nodes + 1), 64-bit: the arithmetic holds for any number of entries up to 2^62
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

/// What ranks that own the rows of node tables give one another. Every table has a row for each node on each rank; a
/// rank computes the rows that it owns. Tables lie on the device; rows and columns are packed and unpacked there.
/// Collective throughout; alone, nothing moves. The memory for messages is kept.
class GraphExchange {
 public:
  /// `partitioned` false: every rank owns, and computes, all rows. `nccl`: what carries a GPU's rows, or null: the host.
  GraphExchange(Communicator& comm, NodeCut cut, bool partitioned, Device device = {},
                std::unique_ptr<GpuReduce> nccl = nullptr);
  const NodeCut& cut() const { return cut_; }
  bool partitioned() const { return partitioned_; }
  Communicator& comm() const { return transport_.comm(); }
  std::int64_t first() const { return partitioned_ ? cut_.first(comm().rank()) : 0; }
  std::int64_t last() const { return partitioned_ ? cut_.last(comm().rank()) : cut_.nodes(); }
  /// Of an ascending set the rows that this rank owns.
  PlacedRows own(const PlacedRows& rows) const { return partitioned_ ? rows.between(first(), last()) : rows; }

  /// The owners' rows of an ascending set become everybody's.
  void share(const Tensor& table, const PlacedRows& rows, const char* what);
  /// The same for elements of a vector that lie row by row: those of row r are [indptr[r], indptr[r + 1]).
  void share(const Tensor& values, std::span<const std::int64_t> indptr, const char* what);
  /// Of chunks that are dealt out like shards: those of all ranks become everybody's. `at(c)` is the row of the array at
  /// which chunk c begins, and at(chunks) where they end.
  void share_chunks(const Tensor& array, std::int64_t chunks, const std::function<std::int64_t(std::int64_t)>& at,
                    const char* what);

  /// y (+)= f(x) on the rows that this rank owns, f a product with a matrix of all nodes, from the left: each rank does
  /// some columns of all rows. Two all-to-alls, rows to columns and back; f gets contiguous (N, columns) arrays.
  void by_columns(Target y, const Tensor& x, const std::function<void(const Tensor& y, const Tensor& x)>& f,
                  const char* what);

  /// "nccl" between GPUs, or what the communicator is.
  const char* backend() const { return transport_.backend(); }
  /// Waits until the device has done all it was given. errors  Error when NCCL fails or its deadline passes
  void wait(std::int64_t step) const { transport_.wait(step); }
  /// Bytes that this rank has received from others so far.
  std::int64_t received_bytes() const { return received_; }

 private:
  std::byte* room(Buffer& memory, std::int64_t size) const;
  /// Pieces of an array that lie in the order of ranks: bytes [begin[r], begin[r + 1]) are rank r's.
  void share_pieces(const Tensor& array, std::span<const std::int64_t> begin, const char* what);

  NodeCut cut_;
  bool partitioned_;
  Device device_;
  DeviceExchange transport_;
  std::int64_t received_ = 0;
  Buffer sending_, arrived_, columns_in_, columns_out_;
};

}  // namespace lockstep
