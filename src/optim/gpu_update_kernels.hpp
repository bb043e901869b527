#pragma once
#include <cstdint>

#include "lockstep/optim/gpu_update.hpp"

/// What the kernels of GpuUpdate leave for those of the optimizers.
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

}  // namespace lockstep::optim_kernels
