#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/nn/params.hpp"
#include "lockstep/nn/tape.hpp"
#include "lockstep/ops/activation.hpp"
#include "lockstep/ops/sample_rows.hpp"

namespace lockstep {

using ops::Activation;

/// Parameters of a fully connected layer: `<name>.weight` (N, K), or (N, K, 1) for a convolution of width 1, and
/// `<name>.bias` (N) or null.
struct Linear {
  const Param* weight = nullptr;
  const Param* bias = nullptr;
};
/// Parameters of a one-channel convolution: `<name>.weight` (C, 1, K) and `<name>.bias` (C).
struct Conv1d {
  const Param* weight = nullptr;
  const Param* bias = nullptr;
};

/// Registers `<name>.weight` and `<name>.bias`.
Linear add_linear(ParamStore& params, const std::string& name, std::int64_t in, std::int64_t out,
                  ParamStore::Init weight, ParamStore::Init bias);
Conv1d add_conv1d(ParamStore& params, const std::string& name, std::int64_t channels, std::int64_t kernel,
                  ParamStore::Init weight, ParamStore::Init bias);

/// Registers layers of equal shapes with adjacent weights and adjacent biases, for stacked_linear().
std::vector<Linear> add_stacked_linears(ParamStore& params, const std::vector<std::string>& names, std::int64_t in,
                                        std::int64_t out, const ParamStore::Init& weight, const ParamStore::Init& bias);

/// y = f(x weight^T + bias), see ops/linear.hpp. shapes  x (..., K) -> (..., N)
Var linear(Tape& tape, Var x, const Linear& layer, Activation activation = Activation::none);
/// y = dropout(f(x weight^T + bias)), see ops/dropout.hpp. The dropout is in place and takes no extra memory.
Var linear(Tape& tape, Var x, const Linear& layer, Activation activation, const ops::Dropout& dropout,
           const ops::SampleRows& rows);
/// y = residual + dropout(x weight^T + bias), the end of a residual branch. A layer norm of y must be the first
/// operation on y: its backward pass also multiplies by the mask and sums for the bias.
Var residual_linear(Tape& tape, Var residual, Var x, const Linear& layer, const ops::Dropout& dropout = {},
                    const ops::SampleRows& rows = {});
/// Applies consecutive layers of add_stacked_linears() in one product and concatenates their results, plus `residual`
/// unless it is empty.
///
/// shapes   x (..., K) -> (..., layers N)
Var stacked_linear(Tape& tape, Var x, std::span<const Linear> layers, Var residual = {});
/// y = f(x), for callers that also need x.
Var activation(Tape& tape, Var x, Activation activation);
/// One-channel convolution, see ops/conv1d.hpp. shapes  x (..., T) -> (..., C T)
Var conv1d(Tape& tape, Var x, const Conv1d& layer, Activation activation = Activation::none);

/// A gated layer as a residual branch, with the norm before it:
///
///   y = z + (silu(z Wg^T) * (z Wu^T)) down^T,   z = x / rms(x) for each row with `norm_eps`, else x
///
/// gate_up = [Wg; Wu] (2I, K); see ops/swiglu.hpp, ops/rmsnorm.hpp. shapes  x, y (..., K); down (K, I)
Var gated_residual(Tape& tape, Var x, const Param& gate_up, const Param& down,
                   const std::optional<double>& norm_eps = {});

/// x plus a gated layer across its positions, normalised per channel, see ops/token_mixing.hpp.
///
/// shapes  x (B, T, D), gate_up (2I, T), down (T, I) -> (B, T, D)
Var token_mixing(Tape& tape, Var x, const Param& gate_up, const Param& down, double eps = 1e-5);

}  // namespace lockstep
