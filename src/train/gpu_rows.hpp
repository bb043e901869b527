#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/device/device.hpp"
#include "lockstep/ops/row_blocks.hpp"
#include "lockstep/train/sharded_step.hpp"
#include "train/row_union.hpp"

namespace lockstep {

/// What travels of a GPU's gradient, bucket by bucket: its row-sparse parameters by the rows that any rank touches, while
/// these pay (row_union.hpp).
///
/// The host knows a step's rows when it has given the backward pass, to the stream or to a graph, as far as the last
/// operation that adds to a table. Then the hosts OR their bitmaps, a bit per row, while the GPUs are busy with what they
/// have been given, and the packing of the rows and their sum are given like everything else: nobody waits for a GPU.
///
/// Ranks give a step ahead together or not at all: a rank that fails before it knows its rows says so in the others' round,
/// and all find the rows when the step itself is given. Rows that were found serve their batch however often it is given.
class GpuRows {
 public:
  GpuRows(Communicator& comm, const ParamStore& params, std::span<const FlatRange> buckets, Gradients& gradients);

  /// The work of a batch is given from its beginning: to the stream or, a step ahead, to a graph.
  /// errors  Error when a rank gives no steps ahead
  enum class Given : std::uint8_t { now, ahead };
  void begin(const GlobalBatch& batch, Given given);
  /// Nothing that is still to be given adds to this parameter.
  void ready(const Param& param) { missing_ -= param.row_sparse ? 1 : 0; }
  /// Whether pack() may be called: all tables are ready, or the bucket has none.
  bool may_pack(std::size_t bucket) const { return missing_ <= 0 || !buckets_[bucket].rows.on(); }
  /// What travels of a bucket, to be summed in place: all of it, or its rows packed into memory of the arena. Collective for
  /// a batch's first bucket with tables. errors  Error when another rank cannot give the step ahead
  Tensor pack(Stream& stream, Arena& arena, std::size_t bucket);
  /// The sums of what was packed since begin() back to where it came from.
  void unpack(Stream& stream);
  /// After a batch was, or might have been, given ahead. Collective. never: this rank will not give any other ahead.
  void end_ahead(const GlobalBatch& batch, bool never);

  /// False when the last round for rows brought none because another rank had failed.
  bool found() const { return complete_ || !on(); }

  /// RowUnion::choice() of all buckets.
  std::string choice() const;

 private:
  struct Bucket {
    FlatRange range;
    RowUnion rows;
  };
  /// Part of a bucket, and where it lies in the message.
  struct Packed {
    Tensor gradient, message;
    bool table;
    ops::RowSet rows;  ///< of a table
  };
  bool on() const;
  void find();
  void exchange(std::uint64_t standing);

  Communicator& comm_;
  Gradients& gradients_;
  std::vector<Bucket> buckets_;
  std::int64_t tables_ = 0;
  GlobalBatch batch_;  ///< being given
  Given given_ = Given::now;
  std::int64_t missing_ = 0;  ///< tables that it may still add to
  std::vector<Packed> packed_;
  std::optional<GlobalBatch> asked_;  ///< what the last exchange was for
  bool complete_ = false;             ///< every rank knew its rows then
  bool ahead_ = true;                 ///< no rank has given up graphs
  std::vector<std::uint64_t> words_;
};

}  // namespace lockstep
