#pragma once
#include "lockstep/ops/spmm.hpp"
#include "lockstep/optim/pieces.hpp"
#include "optim/lazy_adam_kernels.hpp"
#include "optim/sweep_kernels.hpp"

/// The optimizers' kernels on a GPU. Pointers are the GPU's, outputs first; nothing waits for the host.
namespace lockstep::optim_kernels::cuda {

/// One launch for all pieces, average included.
template <class T>
void adam(const GpuSweep& sweep, T* m, T* v, const AdamStep<T>& step);
template <class T>
void adam_atan2(const GpuSweep& sweep, T* m, T* v, const AdamAtan2Step<T>& step);
/// buffer may be null: no momentum
template <class T>
void sgd(const GpuSweep& sweep, T* buffer, const SgdStep<T>& step);
/// Exchanges a and b.
template <class T>
void exchange(const Stream& stream, std::int64_t n, T* a, T* b);

/// How many parts sum_squares() leaves: a function of n alone, so that their sum is, too.
std::int64_t sum_parts(std::int64_t n);
/// Sums of the squares of parts of x, in double. parts may be pinned memory of the host.
template <class T>
void sum_squares(const Stream& stream, double* parts, std::int64_t n, const T* x);
/// y += factor x over rows of `row` elements; with skip_zero not where a row of y is all zero.
template <class T>
void add_scaled(const Stream& stream, T* y, const T* x, T factor, std::int64_t rows, std::int64_t row, bool skip_zero);

/// Run r of `order`, [starts_r, starts_(r+1)), names the gradient rows that are summed, in this order, for row ids_r of
/// the table: row = shrink row - rate sign(sum). The three arrays may be pinned memory of the host.
template <class T>
void sign_descent(const Stream& stream, T* table, const T* gradients, std::int64_t columns, std::int64_t runs,
                  const std::int32_t* ids, const std::int32_t* starts, const std::int32_t* order, T shrink, T rate);

/// history[index] becomes this step's scalars.
void note_step(const Stream& stream, double* history, std::int64_t index, double rate, double root);
void set_steps(const Stream& stream, std::int64_t* done, std::int64_t rows, std::int64_t steps);
/// from_i = done[rows_i], which becomes `to` if it is less: of a row that is named twice, one place gets the older number.
void claim_rows(const Stream& stream, const ops::RowSet& rows, std::int64_t* done, std::int64_t* from, std::int64_t to);

/// Rows of a table that have missed steps: those after from_i up to `to`, without gradient, and with a gradient one step
/// more.
template <class T>
struct LateSteps {
  ops::RowSet rows;
  std::int64_t columns;
  T *p, *m, *v;                      ///< the table and its moments
  const std::int64_t* from;          ///< (rows) steps that they have taken
  const double* history;             ///< rate and root of each step after `base`, kStride apart
  std::int64_t base, to, calm_from;  ///< from step calm_from on, every one makes the moves smaller
  const T* gradient;                 ///< (rows, columns), of step to + 1; null: that is not taken
  AdamStep<T> step;                  ///< of that step; its decays hold for the others as well
};
template <class T>
void late_steps(const Stream& stream, const LateSteps<T>& late);

}  // namespace lockstep::optim_kernels::cuda
