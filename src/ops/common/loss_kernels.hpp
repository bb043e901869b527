#pragma once
#include <cstdint>

#include "lockstep/base/real.hpp"
#include "lockstep/ops/regression_loss.hpp"

namespace lockstep::ops::cuda {

/// loss () is f32 or f64, whatever T is. dx may be null, and so may weights. Gradients and targets have type real_t<T>.
template <class T>
void cross_entropy(const Stream& stream, std::int64_t rows, std::int64_t classes, Tensor loss, real_t<T>* dx,
                   const T* x, const std::int32_t* labels, const double* weights, double smoothing);
/// dy may be null.
template <class T>
void regression_loss(const Stream& stream, std::int64_t n, Tensor loss, real_t<T>* dy, const T* y,
                     const real_t<T>* target, Regression kind);
/// mean and std (columns) are in host memory. dy may be null.
template <class T>
void smoothness_loss(const Stream& stream, std::int64_t rows, std::int64_t columns, Tensor loss, real_t<T>* dy,
                     const T* y, const double* mean, const double* std, int order);

}  // namespace lockstep::ops::cuda
