#pragma once
#include <cstdint>

#include "lockstep/base/real.hpp"
#include "lockstep/device/device.hpp"

namespace lockstep::ops::cuda {

/// A site of ops/collapsed_connections.hpp and the shapes of its arrays.
template <class T>
struct Collapsed {
  std::int64_t rows, columns, n;
  const T *x, *f, *alpha, *weight, *bias;
};
/// The destinations of the gradients; null: not computed.
template <class T>
struct CollapsedGradients {
  T *dx, *df;
  real_t<T>*alpha, *weight, *bias;
};

template <class T>
void collapsed_connection_forward(const Stream& stream, T* y, const Collapsed<T>& site);
template <class T>
void collapsed_connection_backward(const Stream& stream, const CollapsedGradients<T>& to, bool accumulate_dx,
                                   bool accumulate_df, const T* dy, const Collapsed<T>& site);

}  // namespace lockstep::ops::cuda
