#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/device/device.hpp"
#include "lockstep/ops/row_blocks.hpp"
#include "lockstep/step/sharded_step.hpp"
#include "step/row_exchange.hpp"

namespace lockstep {

/// Packs the buckets of a GPU's gradient for the reduction over ranks. Of row-sparse parameters (tables) it packs only
/// the rows that any rank has touched, as long as that is faster (row_exchange.hpp). It costs about half a millisecond a
/// step: bitmaps, some 70 launches, no graph (estimated). So tables below a size go as a whole, which takes less time.
///
/// The host knows the rows of a step once it has enqueued the last operation of the backward pass that adds to a table.
/// The hosts then OR their bitmaps, one bit per row, while the GPUs compute. Packing and reduction are enqueued like
/// all other work, so no rank waits for a GPU. The lengths of the messages depend on the samples, so such a step cannot
/// be a graph.
class GpuRowExchange {
 public:
  /// Bytes that travel in that time over NVLink, and over a network.
  static constexpr std::int64_t kRowsFromOnHost = 100'000'000, kRowsFromBetweenHosts = 5'000'000;
  /// least_bytes  of the tables of a bucket that are sent by rows; 0: one of the two above
  GpuRowExchange(Communicator& comm, const ParamStore& params, std::span<const FlatRange> buckets, Gradients& gradients,
                 std::int64_t least_bytes);

  /// Call it before the first operation of a batch.
  void begin();
  /// Call it when no later operation adds to this parameter.
  void ready(const Param& param) { missing_ -= param.row_sparse ? 1 : 0; }
  /// Whether pack() may be called: all tables are ready, or the bucket is not packed by rows.
  bool may_pack(std::size_t bucket) const { return missing_ <= 0 || !buckets_[bucket].rows.on(); }
  /// The message of a bucket, to be summed in place: the bucket itself, or its dense elements and touched rows, packed
  /// into memory of the arena. Collective for the first bucket with tables of a batch.
  ///
  /// shapes  (elements), at most those of the bucket, with at least one row of each table
  Tensor pack(Stream& stream, Arena& arena, std::size_t bucket);
  /// Copies the sums of all messages since begin() back to the gradient.
  void unpack(Stream& stream);
  /// Whether any bucket is packed by rows.
  bool on() const;

  /// The decisions of all buckets. The pointers stay valid.
  std::vector<RowExchange*> row_exchanges() {
    std::vector<RowExchange*> all;
    for (Bucket& bucket : buckets_) all.push_back(&bucket.rows);
    return all;
  }

 private:
  struct Bucket {
    FlatRange range;
    RowExchange rows;
  };
  /// A RowExchange::Part of a bucket and its copy in the message.
  struct Packed {
    Tensor gradient, message;
    bool table;
    ops::RowSet rows;  ///< of a table: the touched rows
  };
  void find();

  Communicator& comm_;
  Gradients& gradients_;
  std::vector<Bucket> buckets_;
  std::int64_t tables_ = 0;
  std::int64_t missing_ = 0;  ///< tables that are not ready
  std::vector<Packed> packed_;
  bool found_ = false;  ///< whether find() has run since begin()
  std::vector<std::uint64_t> words_;
};

}  // namespace lockstep
