#pragma once
#include <cmath>

#include "lockstep/device/cuda_launch.hpp"
#include "lockstep/ops/regression_loss.hpp"

/// Regression losses of one element for kernels, from e = y - target.
namespace lockstep::gpu {

struct Squared {
  template <class T>
  __device__ static T apply(T e, T& gradient) {
    gradient = 2 * e;
    return e * e;
  }
};
struct Absolute {
  template <class T>
  __device__ static T apply(T e, T& gradient) {
    gradient = static_cast<T>((e > 0) - (e < 0));
    return std::fabs(e);
  }
};
struct Huber {
  template <class T>
  __device__ static T apply(T e, T& gradient) {
    const T size = std::fabs(e);
    gradient = size < 1 ? e : static_cast<T>((e > 0) - (e < 0));  // mutant-equivalent: a difference of 0 is below 1
    return size < 1 ? T(0.5) * e * e : size - T(0.5);
  }
};

/// The loss and gradient of a kind that is the same for all threads.
template <class T>
__device__ T regression(ops::Regression kind, T e, T& gradient) {
  if (kind == ops::Regression::mse) return Squared::apply(e, gradient);
  if (kind == ops::Regression::mae) return Absolute::apply(e, gradient);
  return Huber::apply(e, gradient);
}

}  // namespace lockstep::gpu
