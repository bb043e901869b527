#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "step/row_exchange.hpp"

namespace lockstep {

/// Packs one range of the flat gradient for the reduction over ranks. Of row-sparse parameters it packs only the rows
/// that any rank has touched, as long as that is faster (row_exchange.hpp).
///
/// T   type of the gradient
template <class T>
class CpuRowExchange {
 public:
  /// nonzero  elements of the gradient
  CpuRowExchange(Communicator& comm, const ParamStore& params, FlatRange range, NonzeroElements& nonzero)
      : comm_(comm), nonzero_(nonzero), range_(range), rows_(params, range, comm.size()) {}

  /// RowExchange::on().
  bool on() const { return rows_.on(); }
  /// The message: `front`, then the dense elements and touched rows of the range. Empty if the whole range is sent.
  /// Call it when all threads have completed the range. Makes the range's nonzero elements those of all ranks.
  /// Collective.
  ///
  /// shapes  gradient (flat_size), summed over the threads of this rank
  std::span<T> pack(std::span<const T> front, const T* gradient);
  /// Copies the summed message of the last pack() back to `front` and `gradient`; does nothing if it was empty.
  void unpack(std::span<T> front, T* gradient);
  RowExchange& decisions() { return rows_; }

 private:
  void unite_rows();
  std::int64_t find_ranges();

  Communicator& comm_;
  NonzeroElements& nonzero_;
  FlatRange range_;
  RowExchange rows_;
  std::vector<std::uint64_t> bitmaps_;
  std::vector<FlatRange> ranges_;  ///< contiguous elements of the message
  std::vector<T> message_;
};

}  // namespace lockstep
