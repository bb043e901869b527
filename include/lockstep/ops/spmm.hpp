#pragma once
#include <cstdint>
#include <span>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// The places of a sparse matrix's entries, row by row. The memory is the caller's, of a GPU's product the GPU's.
struct CsrPattern {
  std::span<const std::int64_t> indptr;  ///< (rows + 1)
  std::span<const std::int32_t> column;  ///< (nnz)
  std::int64_t rows() const { return static_cast<std::int64_t>(indptr.size()) - 1; }
};

/// Some rows of an array: a range, or a list. The memory of a list is the caller's, and such that the kernels which get it
/// can read it.
class RowSet {
 public:
  RowSet() = default;
  static RowSet range(std::int64_t first, std::int64_t count) { return {nullptr, first, count}; }
  /// shapes  rows ascending, each once
  static RowSet list(std::span<const std::int32_t> rows) {
    return {rows.data(), 0, static_cast<std::int64_t>(rows.size())};
  }
  constexpr std::int64_t size() const { return count_; }
  [[gnu::always_inline]] constexpr std::int64_t operator[](std::int64_t i) const {
    return list_ != nullptr ? list_[i] : first_ + i;
  }
  RowSet part(std::int64_t first, std::int64_t count) const {
    return {list_ != nullptr ? list_ + first : nullptr, first_ + first, count};
  }

 private:
  RowSet(const std::int32_t* list, std::int64_t first, std::int64_t count)
      : list_(list), first_(first), count_(count) {}
  const std::int32_t* list_ = nullptr;
  std::int64_t first_ = 0, count_ = 0;
};

/// A set of row numbers as a bitmap, lowest first; empty: all.
using RowBits = std::span<const std::uint64_t>;

/// Sparse times dense, for some rows of the result:
///
///   y_rc (+)= sum over entries e of row r, in ascending order, of value_e x_(column_e)c,   for r in rows
///
/// With `columns`, entries whose column is not in the set count as 0 and their rows of x are not read. The product with
/// the transpose of a matrix of symmetric pattern is this one with permuted values. Row r depends on nothing but its
/// entries. Called outside a parallel region, rows are shared among OpenMP's threads by their entries; inside one, the
/// calling thread does all.
///
/// shapes   y (pattern.rows(), C); x (any, C), every column number below its rows; values (nnz)
/// dtypes   f32 | f64, all equal; or x bf16 or f16 with the others f32
/// errors   Error naming the shapes if they do not fit
void spmm(Stream&, Target y, const CsrPattern& pattern, const Tensor& values, const Tensor& x, const RowSet& rows,
          RowBits columns = {});

}  // namespace lockstep::ops
