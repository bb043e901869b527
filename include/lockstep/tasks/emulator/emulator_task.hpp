#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/models/emulator/emulator.hpp"
#include "lockstep/models/emulator/emulator_sensitivity.hpp"
#include "lockstep/tasks/emulator/emulator_data.hpp"
#include "lockstep/train/task.hpp"

namespace lockstep {

struct AffineGuess;

/// The objective, on normalised outputs: the mean over batch and outputs of
///   mse d^2 | mae |d| (gradient 0 at 0) | huber d^2/2 if |d| < 1 else |d| - 1/2
/// plus smooth_weight times the mean over batch and output pairs of (Delta^o y)^2, the finite difference of order o of
/// the physical outputs along the output axis.
struct EmulatorLoss {
  std::string name = "mse";
  double smooth_weight = 0;       ///< 0: off
  std::int64_t smooth_order = 2;  ///< 1 | 2
  /// errors  usage: an unknown name, a negative weight, an order other than 1 or 2, too few outputs for the order
  void check(std::int64_t n_out) const;
};

/// The loss of predictions y (rows, n_out) against targets t, both normalised, summed over rows. Recorded on the tape.
Var emulator_loss(Tape& tape, Var y, const Tensor& t, const EmulatorLoss& loss, const Moments& moments);

/// An emulator and its data set.
///
/// Metrics: loss, rmse (over all outputs, normalised), and per output column NAME: rmse.NAME, bias.NAME, mae.NAME
/// (physical units), r2.NAME, corr.NAME, rmse_norm.NAME, bias_norm.NAME; for an output called aice, rmse and bias at
/// the ice edge (0.10 <= aice <= 0.16) and over open water (< 0.05); if the data set has Jacobians J*, jacobian_error,
/// the median over rows of |J - J*|_F / |J*|_F in normalised units (exact to 0.4 %: a histogram of 4096 bins,
/// 1e-4..1e2).
class EmulatorTask : public ShardTask {
 public:
  struct Options {
    EmulatorArch arch;  ///< the data set determines n_in and n_out
    EmulatorLoss loss;
    DType dtype = DType::f32;
    std::uint64_t seed = 0;
    BiasInit bias_init = BiasInit::zeros;
    std::int64_t sensitivity_rows = 100;
  };
  EmulatorTask(Options options, EmulatorData data);

  const char* kind() const override { return "emulator"; }
  ParamStore& params() override { return emulator_.params(); }
  std::int64_t size(Split split) const override;
  ShardLoss loss(Tape& tape, const Shard& shard) const override;
  std::int64_t least_shard() const override { return 128; }  // fewer rows do not amortise packing the weights
  std::int64_t sum_count() const override;
  void evaluate(Tape& tape, Split split, std::int64_t first, std::int64_t count, double* sums) const override {
    score(tape, split, first, count, nullptr, sums);
  }
  /// Persistence where an output is also an input (same name and level), else the training means; and linear regression.
  std::vector<Baseline> baselines() const override;
  std::vector<Metric> metrics(Split split, const std::vector<double>& sums) const override;
  std::string protocol(Split split) const override { return join(size(split), " rows"); }
  /// sensitivity_metrics() of the first validation rows: jacobian.frobenius_norm, .mean_abs_gradient, .spectral_norm,
  /// .stability, .max_gradient, .gradient_std, .feature.NAME, .most_sensitive_feature, .max_sensitivity
  std::vector<Metric> diagnostics() const override;
  /// Three products per layer, but two for the first one: inputs have no gradient.
  double flops_per_sample() const override {
    const EmulatorArch& arch = emulator_.arch();
    const std::int64_t first =
        arch.conv_channels > 0 ? arch.conv_channels * arch.conv_kernel * arch.n_in : arch.hidden * arch.n_in;
    return 2.0 * static_cast<double>(3 * arch.multiplications() - first);
  }
  void save(H5File& file) const override;
  std::uint64_t data_hash() const override { return data_.hash; }

  Emulator& emulator() { return emulator_; }
  const Emulator& emulator() const { return emulator_; }
  const EmulatorData& data() const { return data_; }
  EmulatorMetadata metadata() const;

 protected:
  struct Rows {
    Tensor z, t;  ///< normalised inputs (N, n_in), and targets (N, n_out) in real_dtype(), in the tape's memory
  };
  Rows normalised(Tape& tape, std::span<const std::int32_t> rows) const;
  /// The summed loss of these rows of the data set.
  ShardLoss loss_of(Tape& tape, std::span<const std::int32_t> rows) const;

 private:
  /// evaluate(), of the network or of a guess.
  void score(Tape& tape, Split split, std::int64_t first, std::int64_t count, const AffineGuess* guess,
             double* sums) const;

  Options options_;
  EmulatorData data_;
  Emulator emulator_;
  std::int64_t aice_ = -1;  ///< index of the output aice; -1 if there is none
};

}  // namespace lockstep
