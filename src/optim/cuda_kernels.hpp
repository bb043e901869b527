#pragma once
#include "lockstep/ops/spmm.hpp"
#include "lockstep/optim/flat_range.hpp"
#include "optim/gpu_update_kernels.hpp"
#include "optim/lazy_adam_kernels.hpp"
#include "optim/sweep_kernels.hpp"

/// The GPU kernels of the optimizers. Pointers are device pointers, outputs first. No call waits for the GPU.
namespace lockstep::optim_kernels::cuda {

/// One launch updates all chunks and the average.
template <class T>
void adam(const GpuSweep& sweep, T* m, T* v, const AdamStep<T>& step);
template <class T>
void adam_atan2(const GpuSweep& sweep, T* m, T* v, const AdamAtan2Step<T>& step);
/// `buffer` is null without momentum.
template <class T>
void sgd(const GpuSweep& sweep, T* buffer, const SgdStep<T>& step);
/// Exchanges a and b.
template <class T>
void exchange(const Stream& stream, std::int64_t n, T* a, T* b);

/// Number of partial sums of sum_squares(). It depends on n only, and so does the order of summation.
std::int64_t partial_sums(std::int64_t n);
/// Partial sums of the squares of x, in f64. `sums` may be pinned host memory.
///
/// shapes   sums (partial_sums(n)), x (n)
template <class T>
void sum_squares(const Stream& stream, double* sums, std::int64_t n, const T* x);
/// y += factor x over rows of `row` elements. With skip_zero, rows of y that are all zero are unchanged.
template <class T>
void add_scaled(const Stream& stream, T* y, const T* x, double factor, std::int64_t rows, std::int64_t row,
                bool skip_zero);

/// row = shrink row - rate sign(sum) for row ids_r of the table. The sum runs over the gradient rows order[starts_r,
/// starts_(r+1)), in this order. `ids`, `starts` and `order` may be pinned host memory.
template <class T>
void sign_descent(const Stream& stream, T* table, const T* gradients, std::int64_t columns, std::int64_t runs,
                  const std::int32_t* ids, const std::int32_t* starts, const std::int32_t* order, T shrink, T rate);

/// Writes the scalars of this step to entry `index` of the history.
void note_step(const Stream& stream, double* history, std::int64_t index, double rate, double root);
void set_steps(const Stream& stream, std::int64_t* done, std::int64_t rows, std::int64_t steps);
/// from_i = done[rows_i], then done[rows_i] = max(done[rows_i], to). Of a duplicate row, only one entry receives the
/// smaller value.
void claim_rows(const Stream& stream, const ops::RowSet& rows, std::int64_t* done, std::int64_t* from, std::int64_t to);

/// Deferred steps of the rows of a table: steps from_i + 1 ... to without gradient, then one more step if there is a
/// gradient.
template <class T>
struct LateSteps {
  ops::RowSet rows;
  std::int64_t columns;
  T *p, *m, *v;                      ///< the table and its moments
  const std::int64_t* from;          ///< (rows), steps that each row has taken
  const double* history;             ///< rate and root of each step after `base`, kStride apart
  std::int64_t base, to, calm_from;  ///< from step calm_from on, each step shrinks the moves
  const T* gradient;                 ///< (rows, columns), of step to + 1; null to skip that step
  AdamStep<T> step;                  ///< of step to + 1; its decay rates hold for all steps
};
template <class T>
void late_steps(const Stream& stream, const LateSteps<T>& late);

}  // namespace lockstep::optim_kernels::cuda
