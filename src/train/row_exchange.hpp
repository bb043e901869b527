#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/nn/params.hpp"
#include "lockstep/optim/optimizer.hpp"

namespace lockstep {

/// One range of the flat gradient between ranks, its row-sparse parameters by the rows that any rank has touched.
///
/// The ranks OR their bitmaps of touched rows, a bit per row, and add up the union's rows packed into one dense message:
/// never more bytes than the dense gradient and the bitmap. Whether that pays, a quarter of the bytes and more, is
/// measured in the first step, the same on all ranks; if it does not, all later steps send everything.
template <class T>
class RowExchange {
 public:
  /// parts[t] is the gradient of thread t; the vector may be filled later.
  RowExchange(Communicator& comm, const ParamStore& params, FlatRange range, const std::vector<Gradients*>& parts);

  /// Whether rows are still chosen.
  bool on() const { return on_; }
  /// `front` and then what of gradient[range] has to travel, or nothing when all of it has. Collective; when all threads
  /// have finished the range.
  std::span<T> pack(std::span<const T> front, const T* gradient);
  /// The summed message of the last pack() back to where it came from; nothing if there was none.
  void unpack(std::span<T> front, T* gradient);
  /// What the first step decided, in words: "item_emb.weight by rows, 3.1 % of 57290 in the first step"; empty before, or
  /// when there is nothing to decide.
  const std::string& choice() const { return choice_; }

 private:
  /// Contiguous elements that travel.
  struct Piece {
    std::int64_t begin, count;
  };
  std::int64_t touched_union(const Param& param);

  Communicator& comm_;
  const FlatRange range_;
  const std::vector<Gradients*>& parts_;
  std::vector<const Param*> tables_;  ///< the row-sparse ones, by offset
  bool on_;
  std::vector<std::uint64_t> bitmap_;
  std::vector<Piece> pieces_;
  std::vector<T> message_;
  std::string choice_;
};

}  // namespace lockstep
