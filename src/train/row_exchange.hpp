#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "train/row_union.hpp"

namespace lockstep {

/// One range of the flat gradient between ranks, its row-sparse parameters by the rows that any rank has touched.
///
/// The ranks OR their bitmaps of touched rows, a bit per row, and add up the union's rows packed into one dense message:
/// never more bytes than the dense gradient and the bitmap, while rows pay (row_union.hpp).
template <class T>
class RowExchange {
 public:
  /// parts[t] is the gradient of thread t; the vector may be filled later.
  RowExchange(Communicator& comm, const ParamStore& params, FlatRange range, const std::vector<Gradients*>& parts)
      : comm_(comm), parts_(parts), rows_(params, range, comm.size()) {}

  /// Whether rows are still chosen.
  bool on() const { return rows_.on(); }
  /// `front` and then what of gradient[range] has to travel, or nothing when all of it has. Collective; when all threads
  /// have finished the range.
  std::span<T> pack(std::span<const T> front, const T* gradient);
  /// The summed message of the last pack() back to where it came from; nothing if there was none.
  void unpack(std::span<T> front, T* gradient);
  /// RowUnion::choice().
  const std::string& choice() const { return rows_.choice(); }

 private:
  /// Contiguous elements that travel.
  struct Piece {
    std::int64_t begin, count;
  };
  std::int64_t find_pieces();

  Communicator& comm_;
  const std::vector<Gradients*>& parts_;
  RowUnion rows_;
  std::vector<std::uint64_t> bitmaps_;
  std::vector<Piece> pieces_;
  std::vector<T> message_;
};

}  // namespace lockstep
