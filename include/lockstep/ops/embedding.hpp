#pragma once
#include <cstdint>
#include <functional>
#include <span>

#include "lockstep/ops/sample_rows.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Looks up rows of a table by number and scales them.
///
///   y_m = scale table[ids_m]
///
/// shapes   table (R, C); ids (M); y (M, C)
/// dtypes   f32 | f64, equal; on a GPU also bf16 | f16, with dtable in f32
/// errors   Error if the shapes do not fit or an id is not in 0..R-1 (not checked in GPU memory)
void embedding_forward(Stream&, const Tensor& y, const Tensor& table, std::span<const std::int32_t> ids, double scale);

/// Rows of a table by number, scaled.
struct EmbeddedRows {
  Tensor table;  ///< may be empty
  std::span<const std::int32_t> ids;
  double scale = 1;
};
/// The sum of the rows of two tables, with dropout (ops/dropout.hpp), in one pass:
///
///   y_m = drop(scale_a A[ids_am] + scale_b B[ids_bm])
///
/// shapes, dtypes, errors  as embedding_forward; B may be empty; y (rows.rows(), C), 0 after the samples if the rate is
///                         not 0; derivative as y, the factors of dropout, or empty
void embedding_sum(Stream&, const Tensor& y, const EmbeddedRows& a, const EmbeddedRows& b, const Dropout& dropout,
                   const SampleRows& rows, const Tensor& derivative = {});

/// The rows of two tables side by side, with dropout, in one pass: y_m = drop([A[ids_m] B[ids_m]]).
///
/// shapes   table (2, R, C): A and B; ids (M); y (M, 2 C), M = rows.rows(), 0 after the samples if the rate is not 0
/// dtypes, errors  as embedding_forward
void embedding_pair(Stream&, const Tensor& y, const Tensor& tables, std::span<const std::int32_t> ids,
                    const Dropout& dropout, const SampleRows& rows);
/// dtables (2, R, C): dA[ids_m] += the first C columns of dy_m, dB[ids_m] += the others, for m ascending over the rows
/// of samples.
void embedding_pair_backward(Stream&, const Tensor& dtables, const Tensor& dy, std::span<const std::int32_t> ids,
                             const SampleRows& rows);

/// The gradient of the table: dtable[ids_m] += scale dy_m for m ascending, always added. Rows with id `padding` are
/// skipped (negative: none). On the CPU, with `places`, the gradient of ids_m goes to row places_m instead.
///
/// shapes   places (M) or empty
/// errors   as embedding_forward
void embedding_backward(Stream&, const Tensor& dtable, const Tensor& dy, std::span<const std::int32_t> ids,
                        double scale, std::int64_t padding, std::span<const std::int32_t> places = {});

}  // namespace lockstep::ops
