#pragma once
#include <array>

#include "lockstep/base/named.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// The supported activations. a is the input:
///
///   none a · gelu a/2 (1 + erf(a/sqrt 2)) · relu max(a, 0), derivative 0 at 0 · tanh · sigmoid 1/(1 + exp -a) ·
///   leaky_relu max(a, a/100), derivative 1/100 at 0 · elu a if a > 0, else exp(a) - 1 · silu a sigmoid(a)
enum class Activation { none, gelu, relu, tanh, sigmoid, leaky_relu, elu, silu };
/// As in configurations and model files.
constexpr auto names_of(Activation) {
  return std::array{"none", "gelu", "relu", "tanh", "sigmoid", "leakyrelu", "elu", "silu"};
}

/// Applies an activation to each element and stores its derivative for the backward.
///
///   y_i = f(x_i),   derivative_i = f'(x_i)
///
/// Value and derivative share one exponential. In f32 the error of y is at most 3 ulp (gelu: 6 ulp down to x = -9). In
/// f64 y is as accurate as the C library. A NaN stays a NaN.
///
/// shapes   x, y, derivative equal; derivative may be an empty Tensor; y may be x
/// dtypes   f32 | f64, on a GPU also bf16 | f16; all equal
/// source   gelu: Hendrycks, Gimpel 2016, arXiv:1606.08415 (erf form); silu: Elfwing, Uchibe, Doya 2017; elu: Clevert
/// et al. 2015
void activation_forward(Stream&, const Tensor& y, const Tensor& derivative, const Tensor& x, Activation activation);
/// Multiplies by the stored derivative: dx_i = dy_i derivative_i. dx is stored, or added when dx.accumulate. dx may be
/// dy.
///
/// shapes   dx, dy, derivative equal
/// dtypes   as activation_forward
/// errors   Error naming the shapes if they differ
void activation_backward(Stream&, Target dx, const Tensor& dy, const Tensor& derivative);

}  // namespace lockstep::ops
