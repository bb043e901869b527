#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/named.hpp"
#include "lockstep/models/emulator/emulator_columns.hpp"
#include "lockstep/nn/observer.hpp"
#include "lockstep/nn/params.hpp"
#include "lockstep/nn/tape.hpp"
#include "lockstep/ops/activation.hpp"

namespace lockstep {

/// The shape of the network: n_in -> [Conv1d] -> hidden x layers -> n_out.
struct EmulatorArch {
  std::int64_t n_in = 0, n_out = 0;
  std::int64_t hidden = 64;
  std::int64_t layers = 3;  ///< hidden layers, >= 1
  ops::Activation activation = ops::Activation::gelu;
  std::int64_t conv_channels = 0;  ///< 0: no Conv1d front end
  std::int64_t conv_kernel = 3;    ///< odd; read only with conv_channels > 0
  bool operator==(const EmulatorArch&) const = default;

  /// Inputs of the first linear layer: n_in, or conv_channels * n_in.
  std::int64_t first_width() const { return conv_channels > 0 ? conv_channels * n_in : n_in; }
  std::int64_t parameters() const;
  /// Multiply-adds of the forward pass of one row, without activations.
  std::int64_t multiplications() const {
    const std::int64_t front = conv_channels * conv_kernel * n_in;
    return front + hidden * (first_width() + (layers - 1) * hidden + n_out);
  }
  /// errors  `fault`: an extent below 1, an even kernel, no activation
  void check(Fault fault) const;
};

/// The nodes at which the Jacobian is used: it is zero where the value of `variable` lies outside [min, max].
struct EmulatorMask {
  std::string variable;  ///< short name; "" for none
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  std::string mode;  ///< mask mode of the data set: sea_ice | ocean | both
};

/// The contents of a model file other than architecture, moments and weights.
struct EmulatorMetadata {
  EmulatorVariables variables;
  EmulatorMask mask;
  std::vector<std::pair<std::string, std::string>> meta;  ///< free-form key/value pairs, in order
};

enum class BiasInit : std::uint8_t {
  zeros,  ///< the default
  torch,  ///< U(-1/sqrt(fan_in), 1/sqrt(fan_in))
};
constexpr auto names_of(BiasInit) { return std::array{"zero", "torch"}; }

/// Intermediate values of a forward pass, which products with its Jacobian need.
struct EmulatorTrace {
  Var conv_pre, conv_act;     ///< (N, C, n_in) and (N, C * n_in); empty without a convolution
  std::vector<Var> pre, act;  ///< a_k and h_k of the hidden layers, (N, hidden)
  /// Passes on conv_pre and conv_act, and layer_2k and layer_2k+1: a_k and h_k.
  void name(const Observer& observer) const;
};

/// The side from which directions multiply a Jacobian J (n_out, n_in).
enum class JacobianSide : std::uint8_t {
  inputs,   ///< v (n_in) -> J v, tangents
  outputs,  ///< v (n_out) -> J^T v, adjoints
};

/// A feed-forward emulator of a column model: architecture, normalisation and weights.
///
///   z = (x - input_mean) / input_std;  h_0 = z, or phi(Conv1d(z)) flattened channel-major
///   h_k = phi(W_k h_{k-1} + b_k), k = 1..L
///   forward(z) = W_{L+1} h_L + b_{L+1};  y = forward(z) * output_std + output_mean
///
/// Parameters: network.{2k}.weight [out, in] and network.{2k}.bias [out], k = 0..L; conv1d.weight [C, 1, K] and
/// conv1d.bias [C]. Initial values: weights Xavier-normal (conv fan_in K, fan_out C K), biases by BiasInit, from Philox
/// by seed and name.
///
/// dtypes  f32 | f64, the same for all parameters
/// source  guillaumevernieres/aibalance, UfsEmulatorFFNN; the convolution: saber-pytorch
class Emulator {
 public:
  /// errors  usage: see EmulatorArch::check; data: see check_moments
  Emulator(EmulatorArch arch, Moments moments, DType dtype = DType::f32, std::uint64_t seed = 0,
           BiasInit bias_init = BiasInit::zeros);

  const EmulatorArch& arch() const { return arch_; }
  const Moments& moments() const { return moments_; }
  DType dtype() const { return params_->dtype(); }
  ParamStore& params() { return *params_; }
  const ParamStore& params() const { return *params_; }

  /// Maps normalised inputs z (N, n_in) to normalised outputs (N, n_out).
  Var forward(Tape& tape, Var z, EmulatorTrace* trace = nullptr) const;
  /// Products of the normalised Jacobian at the rows of a traced forward pass with K directions per row, recorded on
  /// the tape. Their gradient needs the second derivatives of the network.
  ///
  ///   s_k = W_k t_{k-1},   t_k = phi'(a_k) s_k,   J v = W_{L+1} t_L,   t_0 = v          (the adjoints: in reverse
  ///   order)
  ///
  /// shapes   v (K N, n_in) -> (K N, n_out), or for adjoints (K N, n_out) -> (K N, n_in). Row k N + m is direction k of
  ///          row m
  /// source   Pearlmutter 1994, "Fast exact multiplication by the Hessian"
  Var jacobian_products(Tape& tape, const EmulatorTrace& trace, Var v, JacobianSide side) const;

  /// Weight and bias of layer k = 0..layers.
  const Param& weight(std::int64_t k) const;
  const Param& bias(std::int64_t k) const;
  const Param& conv_weight() const;
  const Param& conv_bias() const;

  /// A copy with the weights in another dtype.
  Emulator as(DType dtype) const;

 private:
  /// Returns the initialiser of a weight or bias with these fans.
  using MakeInit = ParamStore::Init (*)(std::int64_t fan_in, std::int64_t fan_out, bool bias);
  /// Without values: the caller allocates the parameters.
  Emulator(EmulatorArch arch, Moments moments, DType dtype, MakeInit init);

  EmulatorArch arch_;
  Moments moments_;
  std::unique_ptr<ParamStore> params_;
  std::vector<const Param*> weights_, biases_;
  const Param* conv_weight_ = nullptr;
  const Param* conv_bias_ = nullptr;
};

}  // namespace lockstep
