#pragma once
#include <cstdint>

#include "lockstep/optim/gpu_update.hpp"

/// The kernels of GpuUpdate. Pointers are device pointers, except for EndOperands::outcome.
namespace lockstep::optim_kernels {

/// The scalars of an optimizer's step in the type of its sweep.
template <class T>
struct UpdateNow {
  T scalars[std::tuple_size_v<StepScalars>];
  bool moves;  ///< false: the step updates nothing
};

/// The state that a step leaves for the next one.
struct UpdateState {
  LossScale scale;
  std::int64_t moved;  ///< whether the last step updated anything
  std::int64_t failed;
};

/// The partial sums of squares of a range of the gradient, or of a penalised parameter.
struct PartialSums {
  std::int64_t count;
  double l2;  ///< of a penalised parameter
};

/// A penalised parameter.
struct Penalty {
  std::int64_t begin, rows, columns;  ///< in the flat vectors
  std::int64_t touched;               ///< not 0: zero gradients of rows stay 0
  std::int64_t first_sum, sums;       ///< its partial sums of squares
  double l2;
};

/// The operands of decide_step().
template <class T>
struct EndOperands {
  RankReports reports;
  const GpuStepRecord* record;
  const double* sums;  ///< of the ranges, then of the penalised parameters
  const PartialSums* parts;
  int ranges, penalised;
  bool scaled, updates;  ///< GpuUpdate::Options; whether there is an optimizer
  double clip_norm;
  std::int64_t size;
  const T* gradient;  ///< (size)
  UpdateState* state;
  UpdateNow<T>* now;
  GpuOutcome* outcome;
};

namespace cuda {

/// Sets the loss scale of the step, and the seed of its backward pass.
template <class T>
void open_step(const Stream& stream, T* seed, UpdateState* state, const GpuStepRecord* record);
/// gradient += 2 l2 weight values for each penalised parameter, where the weight is the sum over all ranks, times the
/// loss scale if `scaled`. Also computes the partial sums of squares of the values, as sum_squares() does.
template <class T>
void penalise(const Stream& stream, const Penalty* penalties, std::int64_t blocks, T* gradient, const T* values,
              double* sums, const UpdateState* state, const RankReports& reports, const GpuStepRecord* record,
              bool scaled);
/// Writes *now, *state and *outcome.
template <class T>
void decide_step(const Stream& stream, const EndOperands<T>& step);

}  // namespace cuda
}  // namespace lockstep::optim_kernels
