#pragma once
#include <algorithm>
#include <array>
#include <bit>

#include "lockstep/optim/flat_range.hpp"
#include "optim/gpu_update_kernels.hpp"
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

}  // namespace lockstep::optim_kernels::cuda
