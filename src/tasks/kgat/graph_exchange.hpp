#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/gpu_reduce.hpp"
#include "lockstep/models/kgat/kgat_propagation.hpp"

namespace lockstep {

/// The nodes of a graph in contiguous segments of about equal work, and the segments that each rank owns. The segments
/// depend on the graph alone, so sums over them are the same on any number of ranks.
class NodeCut {
 public:
  /// Work of a row besides its entries, in units of an entry: the cost of dense products, element-wise work and update,
  /// divided by that of an entry in a sparse product. On kgat-ml1m (layers of 64, 64, 32 and 16 columns, AVX-512) the
  /// measured ratio is 75. Two ranks would take equal times at 40, because the first rows have more expensive entries,
  /// which read all parts of the table.
  static constexpr std::int64_t kRowCost = 48;
  /// shapes  indptr (nodes + 1), 64-bit: correct for up to 2^62 entries
  /// errors  Error if `segments` or `ranks` is not positive
  NodeCut(std::span<const std::int64_t> indptr, std::int64_t segments, int ranks);
  std::int64_t segments() const { return static_cast<std::int64_t>(begin_.size()) - 1; }
  std::int64_t nodes() const { return begin_.back(); }
  int ranks() const { return static_cast<int>(first_segment_.size()) - 1; }
  /// Nodes of segment s: [begin(s), begin(s + 1)).
  std::int64_t begin(std::int64_t s) const { return begin_[s]; }
  /// Segments of rank r: [first_segment(r), first_segment(r + 1)), and their nodes.
  std::int64_t first_segment(int r) const { return first_segment_[r]; }
  /// first(ranks) is the end of the last one.
  std::int64_t first(int r) const { return begin(first_segment(r)); }
  std::int64_t last(int r) const { return begin(first_segment(r + 1)); }

 private:
  std::vector<std::int64_t> begin_, first_segment_;
};

/// Transfers between ranks that own the rows of node tables. Every rank has a row for each node in each table, and
/// computes the rows that it owns. Tables lie on the device, which packs and unpacks the messages: from GPU to GPU by
/// NCCL, or through page-locked host memory. Collective throughout; one rank transfers nothing.
class GraphExchange final : public RowOwner {
 public:
  /// `partitioned` false: every rank owns, and computes, all rows. `nccl` may be null.
  GraphExchange(Communicator& comm, NodeCut cut, bool partitioned, Device device = {},
                std::unique_ptr<GpuReduce> nccl = nullptr);
  const NodeCut& cut() const { return cut_; }
  bool partitioned() const { return partitioned_; }
  Communicator& comm() const { return comm_; }
  std::int64_t first() const { return partitioned_ ? cut_.first(comm_.rank()) : 0; }
  std::int64_t last() const { return partitioned_ ? cut_.last(comm_.rank()) : cut_.nodes(); }
  /// All ranks see one copy of the tables in this memory, so share() of their rows is only a barrier.
  void set_shared(std::span<const std::byte> memory) { shared_ = memory; }
  PlacedRows own(const PlacedRows& rows) const override { return partitioned_ ? rows.between(first(), last()) : rows; }
  void share(const Tensor& table, const PlacedRows& rows, const char* what) override;
  /// Fetches the other ranks' elements of a vector that lies row by row: those of row r are [indptr[r], indptr[r + 1]).
  void share_values(const Tensor& values, std::span<const std::int64_t> indptr, const char* what);
  /// Fetches the other ranks' chunks, which are distributed like shards. `at(c)` is the row of the array at which chunk
  /// c begins; at(chunks) is the end.
  void share_chunks(const Tensor& array, std::int64_t chunks, const std::function<std::int64_t(std::int64_t)>& at,
                    const char* what);

  /// "nccl" between GPUs, or the communicator's.
  const char* backend() const { return nccl_ ? "nccl" : comm_.backend(); }
  /// Waits until the stream has finished. errors  Error when NCCL fails or its deadline passes
  void wait(std::int64_t step) const;
  /// Bytes that this rank has received from others so far.
  std::int64_t received_bytes() const { return received_; }

  /// Ends the use of NCCL. No exchange may follow.
  void end_collectives() { nccl_.reset(); }

 private:
  bool on_gpu() const { return stream_.device().is_cuda(); }
  /// Device memory that lasts from call to call, of at least this size.
  std::byte* reserve(Buffer& memory, std::int64_t size) const;
  /// Ranges of an array in the order of ranks: units [begin(r), begin(r + 1)) belong to rank r.
  void share_ranges(const Tensor& array, std::int64_t unit_bytes, const std::function<std::int64_t(int)>& begin,
                    const char* what);
  /// all_gather_known of a Communicator for memory of the device, in the order of its main stream.
  void all_gather(std::span<const std::byte> mine, std::span<const std::int64_t> sizes, std::span<std::byte> into,
                  const char* what);

  Communicator& comm_;
  NodeCut cut_;
  bool partitioned_;
  Stream stream_;
  std::span<const std::byte> shared_;
  std::int64_t received_ = 0;
  Buffer sending_, arrived_;         ///< on the device
  Buffer host_out_, host_in_;        ///< page-locked
  std::unique_ptr<GpuReduce> nccl_;  ///< destroyed first: freeing memory waits for collectives, which an abort ends
};

}  // namespace lockstep
