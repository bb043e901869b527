#pragma once
#include <algorithm>
#include <array>
#include <bit>

#include "lockstep/ops/spmm.hpp"
#include "lockstep/optim/flat_range.hpp"
#include "lockstep/optim/lazy_adam.hpp"
#include "optim/gpu_update_kernels.hpp"
#include "optim/lazy_adam_kernels.hpp"
#include "optim/sweep_kernels.hpp"

namespace lockstep::optim_kernels {

/// The scalars of a step in the type of the sweep.
template <class Step>
Step step_as(const StepScalars& scalars) {
  using T = decltype(Step::scale);
  std::array<T, sizeof(Step) / sizeof(T)> cast;
  std::transform(scalars.begin(), scalars.begin() + cast.size(), cast.begin(),
                 [](double x) { return static_cast<T>(x); });
  return std::bit_cast<Step>(cast);
}

/// At most this many tables are updated in one launch.
inline constexpr std::size_t kMostTables = 3;

/// Rows of tables in a step that a GPU makes without the host, see LazyNow and UpdateNow. Pointers are device pointers.
template <class T>
struct LazySteps {
  struct Table {
    const std::int32_t* rows;
    std::int64_t elements, columns;
    T *p, *m, *v;        ///< the table and its moments
    std::int64_t* done;  ///< steps that each row of the table has taken
    const T* gradient;   ///< (elements)
  };
  Table tables[kMostTables] = {};
  std::size_t count = 0;
  const LazyNow* now = nullptr;
  double* history = nullptr;
  const UpdateNow<T>* update = nullptr;
  AdamStep<T> decay = {};  ///< beta1, beta2, eps
};

}  // namespace lockstep::optim_kernels

/// The GPU kernels of the optimizers. Pointers are device pointers, outputs first. No call waits for the GPU.
namespace lockstep::optim_kernels::cuda {

/// One launch updates all chunks and the average. a and b are the states of the rule; those that it lacks are null.
template <template <class> class Step, class T>
void sweep(const GpuSweep& sweep, T* a, T* b, const Step<T>& step);
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

/// The operands of sign_sgd_rows(), with row-major arrays.
template <class T>
struct SignDescent {
  T *table, *shadow;  ///< shadow may be null
  const T* gradients;
  std::int64_t columns;
  const std::int32_t* ids;
  std::int64_t samples;
  double lr, weight_decay;
  const GpuStepRecord* record = nullptr;  ///< unless null, lr is a factor of the record's
  const bool* moves = nullptr;            ///< unless null, the table changes only if it is set
};
template <class T>
void sign_descent(const Stream& stream, const SignDescent<T>& descent);

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
  ops::RowSet rows = {};
  std::int64_t columns = 0;
  T *p = nullptr, *m = nullptr, *v = nullptr;    ///< the table and its moments
  const std::int64_t* from = nullptr;            ///< (rows), steps that each row has taken
  const double* history = nullptr;               ///< rate and root of each step after `base`, kStride apart
  std::int64_t base = 0, to = 0, calm_from = 0;  ///< from step calm_from on, each step shrinks the moves
  const T* gradient = nullptr;                   ///< (rows, columns), of step to + 1; null to skip that step
  AdamStep<T> step = {};                         ///< of step to + 1; its decay rates hold for all steps
};
template <class T>
void late_steps(const Stream& stream, const LateSteps<T>& late);

/// The kernels of LazyAdam's steps without the host.
template <class T>
void lazy_catch_up(const Stream& stream, const LazySteps<T>& steps);
template <class T>
void lazy_update(const Stream& stream, const LazySteps<T>& steps);

}  // namespace lockstep::optim_kernels::cuda
