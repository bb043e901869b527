#pragma once
#include <cstdint>
#include <span>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// The positions of a sparse matrix's entries, row by row. The caller owns the memory, which must be GPU memory for a
/// product on a GPU.
struct CsrPattern {
  std::span<const std::int64_t> indptr;  ///< (rows + 1)
  std::span<const std::int32_t> column;  ///< (nnz)
  std::int64_t rows() const { return std::ssize(indptr) - 1; }
};

/// Some rows of an array: a range or a list. The caller owns the memory of a list, which the kernels must be able to
/// read.
class RowSet {
 public:
  RowSet() = default;
  static RowSet range(std::int64_t first, std::int64_t count) { return {nullptr, first, count}; }
  /// The rows in `rows`, ascending and distinct.
  static RowSet list(std::span<const std::int32_t> rows) { return {rows.data(), 0, std::ssize(rows)}; }
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

/// A set of row numbers as a bitmap, lowest bit first. Empty means all rows.
using RowBits = std::span<const std::uint64_t>;

/// Sparse times dense, for some rows of the result:
///
///   y_rc (+)= sum over entries e of row r, in ascending order, of value_e x_(column_e)c,   for r in rows
///
/// With `columns`, entries whose column is not in the set count as 0 and their rows of x are not read. For a matrix
/// with a symmetric pattern, the product with the transpose is this product with permuted values. In every bit, row r
/// depends only on the entries of row r and the rows of x at their columns. Called outside a parallel region, the op
/// divides rows among the OpenMP threads by their number of entries; inside one it runs on the calling thread.
///
/// shapes   y (pattern.rows(), C); x (any, C), with more rows than any column number; values (nnz)
/// dtypes   f32 | f64, all equal; or x bf16 | f16 with the others f32
/// errors   Error naming the shapes if they do not fit
void spmm(Stream&, Target y, const CsrPattern& pattern, const Tensor& values, const Tensor& x, const RowSet& rows,
          RowBits columns = {});

}  // namespace lockstep::ops
