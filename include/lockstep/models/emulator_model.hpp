#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/models/emulator.hpp"
#include "lockstep/models/model.hpp"

namespace lockstep {

/// What is minimised, on normalised outputs: the mean over batch and outputs of
///   mse d^2 | mae |d| (gradient 0 at 0) | huber d^2/2 if |d| < 1 else |d| - 1/2
/// plus smooth_weight times the mean over batch and output pairs of (Delta^o y)^2, the finite difference of order o of
/// the physical outputs along the output axis.
struct EmulatorLoss {
  std::string name = "mse";
  double smooth_weight = 0;       ///< 0: off
  std::int64_t smooth_order = 2;  ///< 1 | 2
  /// errors  usage: an unknown name, a negative weight, an order other than 1 and 2, or an order that n_out does not
  /// allow
  void check(std::int64_t n_out) const;
};

/// What the network's sensitivities look like over some rows: R_ri = sum_o d y_norm,o / d z_i at row r.
struct SensitivityMetrics {
  std::vector<double> rows;  ///< R (rows, n_in)
  double frobenius_norm = 0;
  double mean_abs_gradient = 0;
  double spectral_norm = 0;                 ///< largest singular value
  double stability = 0;                     ///< largest over smallest singular value; 1e6 if the smallest is <= 1e-12
  double max_gradient = 0;                  ///< largest |R|
  double gradient_std = 0;                  ///< population standard deviation
  std::vector<double> feature_sensitivity;  ///< mean |R| per input
  std::int64_t most_sensitive_feature = 0;
  double max_sensitivity = 0;  ///< of that feature
};
/// Of the first `rows` physical states x (rows, n_in).
SensitivityMetrics sensitivity_metrics(const Emulator& emulator, std::int64_t rows, const float* x);
SensitivityMetrics sensitivity_metrics(const Emulator& emulator, std::int64_t rows, const double* x);

/// The sum over the rows of the loss of the predictions y (rows, n_out) against targets t, both normalised, on the
/// tape.
Var emulator_loss(Tape& tape, Var y, const Tensor& t, const EmulatorLoss& loss, const Moments& moments);

/// An emulator with its data set, as the trainer sees it.
///
/// Metrics: loss, rmse (over all outputs, normalised), and per output column NAME: rmse.NAME, bias.NAME, mae.NAME
/// (physical units), r2.NAME, corr.NAME, rmse_norm.NAME, bias_norm.NAME; for an output called aice rmse and bias at the
/// ice edge (0.10 <= aice <= 0.16) and over open water (< 0.05); where the truth is known jacobian_error, the median
/// over rows of |J - J*|_F / |J*|_F in normalised units (from a histogram of 4096 bins over 1e-4..1e2, so to 0.4 %).
class EmulatorModel : public Model {
 public:
  struct Options {
    EmulatorArch arch;  ///< n_in and n_out are taken from the data
    EmulatorLoss loss;
    DType dtype = DType::f32;
    std::uint64_t seed = 0;
    BiasInit bias_init = BiasInit::zeros;
    std::int64_t sensitivity_rows = 100;
  };
  EmulatorModel(Options options, EmulatorData data);

  const char* kind() const override { return "emulator"; }
  ParamStore& params() override { return emulator_.params(); }
  std::int64_t size(Split split) const override;
  ShardLoss loss(Tape& tape, const Shard& shard) const override;
  std::int64_t least_shard() const override { return 128; }  // enough rows that packing the weights is a small part of the products
  std::int64_t sum_count() const override;
  void evaluate(Tape& tape, Split split, std::int64_t first, std::int64_t count, double* sums) const override;
  std::vector<Metric> metrics(Split split, const std::vector<double>& sums) const override;
  /// sensitivity_metrics of the first validation rows: jacobian.frobenius_norm, .mean_abs_gradient, .spectral_norm,
  /// .stability, .max_gradient, .gradient_std, .feature.NAME, .most_sensitive_feature, .max_sensitivity
  std::vector<Metric> diagnostics() const override;
  /// Three products per layer, but none for the gradient of the data.
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
  EmulatorCard card() const;

 protected:
  struct Rows {
    Tensor z, t;  ///< normalised inputs (N, n_in), and targets (N, n_out) of real_dtype(), in the tape's memory
  };
  Rows normalised(Tape& tape, std::span<const std::int32_t> rows) const;
  /// The loss of these rows of the data set, summed.
  ShardLoss loss_of(Tape& tape, std::span<const std::int32_t> rows) const;

 private:
  Options options_;
  EmulatorData data_;
  Emulator emulator_;
  std::int64_t aice_ = -1;  ///< the output called aice, or -1
};

/// Writes and reads what Model::save writes for an emulator (architecture attributes on `/`, /norm, /vars, /mask,
/// /meta): everything but the weights.
void save_emulator_card(H5File& file, const EmulatorArch& arch, const Moments& moments, const EmulatorCard& card);
struct EmulatorDescription {
  EmulatorArch arch;
  Moments moments;
  EmulatorCard card;
};
EmulatorDescription read_emulator_card(const H5File& file);

}  // namespace lockstep
