#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/nn/params.hpp"
#include "lockstep/optim/optimizer.hpp"

namespace lockstep {

/// What of one range of the flat gradient has to travel between ranks: all but the rows of its row-sparse parameters that no
/// rank has touched.
///
/// Each rank notes its rows in bitmaps, the ranks OR these, and what comes out is read, the same on all of them. Whether
/// rows pay, a quarter of the bytes and more, is measured in the first step; if they do not, all later steps send everything.
class RowUnion {
 public:
  /// A stretch of the range: contiguous elements, or rows of a table.
  struct Part {
    const Param* table;              ///< null: elements
    std::int64_t begin, count;       ///< elements; of a table all of them
    std::vector<std::int32_t> rows;  ///< of a table: those of the union, ascending
    std::int64_t width() const { return table->shape.size() / table->shape[0]; }
  };

  RowUnion(const ParamStore& params, FlatRange range, int ranks);

  /// Whether rows are still chosen.
  bool on() const { return on_; }
  /// Length of the bitmaps of all tables, one after another.
  std::size_t words() const { return words_; }
  /// Adds the rows that `gradients` has touched to the bitmaps.
  void note(std::span<std::uint64_t> bitmaps, Gradients& gradients) const;
  /// Takes the bitmaps that all ranks hold; the first ones decide. element_bytes: of what travels.
  void read(std::span<const std::uint64_t> bitmaps, std::size_t element_bytes);
  /// The range, in order, with the rows that were read last.
  const std::vector<Part>& parts() const { return parts_; }
  /// What the first step decided, in words: "by rows, rows touched in the first step: item_emb.weight 3.1 % of 57290"; empty
  /// before, or when there is nothing to decide.
  const std::string& choice() const { return choice_; }

 private:
  static std::size_t words_of(const Param& table) { return static_cast<std::size_t>((table.shape[0] + 63) / 64); }
  void decide(std::size_t element_bytes);

  std::vector<Part> parts_;
  std::size_t words_ = 0;
  bool on_ = false;
  std::string choice_;
};

}  // namespace lockstep
