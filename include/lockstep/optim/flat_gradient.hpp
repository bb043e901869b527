#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/base/bitmap.hpp"
#include "lockstep/nn/params.hpp"
#include "lockstep/optim/flat_range.hpp"

namespace lockstep {

/// The elements of a flat gradient that may be nonzero: all but the rows of row-sparse parameters that no backward pass
/// has touched. Sums, norms and updates skip the other elements, so the cost of a step is proportional to the rows that
/// it touches.
class NonzeroElements {
 public:
  struct Table {
    const Param* param;
    FlatRange range;
    std::int64_t columns;
    std::vector<std::uint64_t> rows;  ///< a bit per row that may be nonzero, lowest first
  };
  NonzeroElements() = default;
  /// Starts with no row of any row-sparse parameter.
  explicit NonzeroElements(const ParamStore& params);

  std::vector<Table>& tables() { return tables_; }
  const std::vector<Table>& tables() const { return tables_; }
  /// The bits of a row-sparse parameter.
  std::span<std::uint64_t> rows_of(const Param& param);
  /// Adds all rows of the row-sparse parameters in a range.
  void add_all(FlatRange within);
  /// Calls f(begin, end) for the elements in a range, ascending, neighbours merged.
  template <class F>
  void for_each(FlatRange within, const F& f) const {
    FlatRange merged{within.begin, within.begin};
    const auto add = [&](std::int64_t begin, std::int64_t end) {
      if (begin >= end) return;
      if (begin > merged.end) {
        if (merged.count() > 0) f(merged.begin, merged.end);
        merged.begin = begin;
      }
      merged.end = end;
    };
    std::int64_t at = within.begin;
    for (const Table& t : tables_) {
      const std::int64_t first = std::max(at, t.range.begin), last = std::min(within.end, t.range.end);
      if (first >= last) continue;
      add(at, first);
      at = last;
      for_each_bit(t.rows, (first - t.range.begin) / t.columns, (last - t.range.begin + t.columns - 1) / t.columns,
                   [&](std::int64_t row) {
                     const std::int64_t begin = t.range.begin + row * t.columns;
                     add(std::max(first, begin), std::min(last, begin + t.columns));
                   });
    }
    add(at, within.end);
    if (merged.count() > 0) f(merged.begin, merged.end);
  }

 private:
  std::vector<Table> tables_;  ///< ascending
};

/// A flat gradient in the layout of a ParamStore's values.
struct FlatGradient : Tensor {
  FlatGradient() = default;
  FlatGradient(const Tensor& flat, NonzeroElements* nonzero = nullptr)  // NOLINT: implicit on purpose
      : Tensor(flat), nonzero(nonzero) {}
  FlatGradient(const OwnedTensor& flat) : Tensor(flat.view()) {}  // NOLINT: implicit on purpose
  /// Null: any element may be nonzero. Functions that make more elements nonzero, such as add_penalty(), extend it.
  NonzeroElements* nonzero = nullptr;
  /// Calls f(begin, end) for the elements in a range that may be nonzero, as NonzeroElements::for_each().
  template <class F>
  void for_each_nonzero(FlatRange within, const F& f) const {
    if (nonzero != nullptr) return nonzero->for_each(within, f);
    if (within.count() > 0) f(within.begin, within.end);
  }
};

}  // namespace lockstep
