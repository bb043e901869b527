#pragma once
#include <string_view>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// gelu a/2 (1 + erf(a/sqrt 2)) · relu max(a, 0), derivative 0 at 0 · tanh · sigmoid 1/(1 + exp -a) ·
/// leaky_relu max(a, a/100), derivative 1/100 at 0 · elu a if a > 0, else exp(a) - 1 · silu a sigmoid(a) · none a
enum class Activation { none, gelu, relu, tanh, sigmoid, leaky_relu, elu, silu };

/// "gelu", "relu", "tanh", "sigmoid", "leakyrelu", "elu", "silu", "none": as configurations and model files spell them.
const char* name(Activation activation);
/// The inverse of name(). errors  Error (usage) that lists the names
Activation parse_activation(std::string_view name);

/// Apply an activation to each element, and keep its derivative for the backward.
///
///   y_i = f(x_i),   derivative_i = f'(x_i)
///
/// Both share one exponential. In f32 y is within 3 ulp of the exact value (gelu 6, as far as -9); in f64 it is as exact as the C library.
/// A NaN stays a NaN.
///
/// shapes   x, y, derivative equal; derivative may be an empty Tensor; y may be x
/// dtypes   f32 | f64, on a GPU also bf16 | f16, all equal
/// source   gelu: Hendrycks, Gimpel 2016, arXiv:1606.08415 (erf form); silu: Elfwing, Uchibe, Doya 2017; elu: Clevert
/// et al. 2015
void activation_forward(Stream&, const Tensor& y, const Tensor& derivative, const Tensor& x, Activation activation);
/// dx_i = dy_i derivative_i; stored, or added when dx.accumulate. dx may be dy.
void activation_backward(Stream&, Target dx, const Tensor& dy, const Tensor& derivative);

}  // namespace lockstep::ops
