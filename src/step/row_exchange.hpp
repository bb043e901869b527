#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/nn/params.hpp"
#include "lockstep/optim/optimizer.hpp"

namespace lockstep {

/// Decides how one range of the flat gradient is sent between ranks: whole, or without the table rows that no rank has
/// touched.
///
/// Each rank marks its rows in bitmaps, the ranks OR them, and read() takes the result, which is equal on all ranks.
/// The first step decides: rows are sent if that saves more than a quarter of the bytes. Otherwise all later steps send
/// the whole range.
class RowExchange {
 public:
  /// Contiguous elements of the range, or the rows of a table.
  struct Part {
    const Param* table;              ///< null for contiguous elements
    std::int64_t begin, count;       ///< elements of the flat gradient; for a table, all its elements
    std::vector<std::int32_t> rows;  ///< for a table: rows that any rank has touched, ascending
    std::int64_t width() const { return table->shape.size() / table->shape[0]; }
  };

  /// least  elements of the tables below which the range is always sent whole
  RowExchange(const ParamStore& params, FlatRange range, int ranks, std::int64_t least = 0);

  /// Whether the range is sent by rows. True until the first step has decided, if there are tables and other ranks.
  bool on() const { return on_; }
  /// Length of the concatenated bitmaps of all tables. Units: 64-bit words.
  std::size_t words() const { return words_; }
  /// ORs the rows that `gradients` has touched into the bitmaps. shapes  bitmaps (words())
  void note(std::span<std::uint64_t> bitmaps, Gradients& gradients) const;
  /// Sets Part::rows from the bitmaps of all ranks; the first call decides. shapes  bitmaps (words())
  ///
  /// element_bytes  size of an element in a message
  void read(std::span<const std::uint64_t> bitmaps, std::size_t element_bytes);
  /// Sets the decision of an earlier start, so that a resumed run adds in the same order as an uninterrupted run.
  void decide_as_before(bool by_rows);
  /// The whole range in order, with the rows of the last read().
  const std::vector<Part>& parts() const { return parts_; }
  /// The decision as text: "by rows, rows touched in the first step: item_emb.weight 3.1 % of 57290". Empty before the
  /// first step, and if there is nothing to decide.
  const std::string& choice() const { return choice_; }

 private:
  void decide(std::size_t element_bytes);

  std::vector<Part> parts_;
  std::size_t words_ = 0;
  bool on_ = false;
  std::string choice_;
};

}  // namespace lockstep
