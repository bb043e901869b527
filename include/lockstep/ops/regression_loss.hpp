#pragma once
#include <array>
#include <span>

#include "lockstep/base/named.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// The loss of one element. With d = y - target: mse d^2 · mae |d|, derivative 0 at 0 · huber d^2/2 if |d| < 1, else
/// |d| - 1/2
enum class Regression { mse, mae, huber };
constexpr auto names_of(Regression) { return std::array{"mse", "mae", "huber"}; }

/// A regression loss summed over all elements, and its gradient, in one pass. Each row counts with its weight.
///
/// loss receives the sum, computed in f64 in an order that depends on the number of elements alone.
///
/// shapes   loss (); y, target, dy equal, (M, C) with weights; weights (M); dy, weights may be empty
/// dtypes   y, target, dy, weights f32 | f64, equal, or on a GPU y bf16 | f16 and the others f32; loss f32 | f64
/// errors   Error naming the shapes if they differ
void regression_loss(Stream&, const Tensor& loss, const Tensor& dy, const Tensor& y, const Tensor& target,
                     Regression kind, const Tensor& weights = {});

/// The sum of squared finite differences along each row of the denormalised prediction, and its gradient: a measure of
/// how rough a vertical profile is.
///
///   p_mc = y_mc std_c + mean_c,   loss = sum_m sum_c (D^order p)_mc^2,   D p_c = p_c+1 - p_c,
///   D^2 p_c = p_c+2 - 2 p_c+1 + p_c
///
/// shapes   loss (); y, dy (M, C), C > order; mean, std (C), pinned host memory for a GPU; dy may be empty
/// range    order 1 | 2
/// errors   Error if the shapes do not fit, order is not 1 or 2, or C <= order
void smoothness_loss(Stream&, const Tensor& loss, const Tensor& dy, const Tensor& y, std::span<const double> mean,
                     std::span<const double> std, int order);

}  // namespace lockstep::ops
