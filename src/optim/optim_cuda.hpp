#pragma once
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

/// Adam over some rows of a table. The scalars of step t + 1 are rate_t = history[2 (t - base)] and root_t, the next one.
template <class T>
struct LateSteps {
  std::int64_t columns;
  T *p, *m, *v;                        ///< (R, columns), of which only the named rows are touched
  const LateRow* rows;                 ///< `count` rows, each once
  std::int64_t count;
  const double* history;
  std::int64_t base, to, calm_from;    ///< steps without gradient: those after `done` up to `to`
  const T* gradient;                   ///< (count, columns) of one step more, or null
  AdamStep<T> step;                    ///< of that step; its decays hold for the others as well
};
template <class T>
void late_steps(const Stream& stream, const LateSteps<T>& late);

}  // namespace lockstep::optim_kernels::cuda
