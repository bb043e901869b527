#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/models/emulator/emulator.hpp"
#include "lockstep/models/emulator/emulator_sensitivity.hpp"
#include "lockstep/ops/regression_loss.hpp"
#include "lockstep/tasks/emulator/emulator_data.hpp"
#include "lockstep/train/ensemble.hpp"
#include "lockstep/train/first_weights.hpp"
#include "lockstep/train/task.hpp"

namespace lockstep {

struct AffineGuess;
class Constraint;
namespace emulator_metrics {
struct Layout;
}

/// The objective, on normalised outputs: the mean over batch and outputs of
///   mse d^2 | mae |d| (gradient 0 at 0) | huber d^2/2 if |d| < 1 else |d| - 1/2
/// plus smooth_weight times the mean over batch and output pairs of (Delta^o y)^2, the finite difference of order o of
/// the physical outputs along the output axis; plus jacobian times the mean squared error of the Jacobian
/// (EmulatorTask, from the data set's Jacobians), and constraint_weight times the mean over rows of the sum of v_i^2
/// over the constraints' physical values v_i.
struct EmulatorLoss {
  ops::Regression kind = ops::Regression::mse;
  double smooth_weight = 0;       ///< 0: off
  std::int64_t smooth_order = 2;  ///< 1 | 2
  double jacobian = 0;            ///< 0: off
  std::int64_t directions = 0;    ///< random directions of the Jacobian per row and step; 0: the whole Jacobian
  std::string constraint = {};    ///< expressions that should be 0, see tasks/emulator/constraint.hpp; "": none
  double constraint_weight = 1;
  /// errors  usage: a negative weight, an order other than 1 or 2, too few outputs for the order
  void check(std::int64_t n_out) const;
  /// Checks this loss for a data set and reads its constraints; null if there are none.
  ///
  /// errors  usage: as check(); a Jacobian term without Jacobians in the data set; constraints that cannot be read
  std::shared_ptr<const Constraint> checked_for(const std::filesystem::path& data, const EmulatorVariables& variables,
                                                bool has_jacobian) const;
  /// errors  usage: constraints on a GPU
  void check_device(bool on_gpu) const;
};

/// The loss of predictions y (rows, n_out) against targets t, both normalised, summed over rows and without the term of
/// the Jacobian. Recorded on the tape.
///
/// weights  (rows), factors of the rows, or empty; only without further terms
Var emulator_loss(Tape& tape, Var y, const Tensor& t, const EmulatorLoss& loss, const Moments& moments,
                  const Tensor& weights = {});

/// An emulator and its data set.
///
/// Metrics: loss, rmse (over all outputs, normalised), and per output column NAME: rmse.NAME, bias.NAME, mae.NAME
/// (physical units), r2.NAME, corr.NAME, rmse_norm.NAME, bias_norm.NAME; for an output called aice, rmse and bias at
/// the ice edge (0.10 <= aice <= 0.16) and over open water (< 0.05); if the data set has Jacobians J*, jacobian_error,
/// the median over rows of |J - J*|_F / |J*|_F in normalised units (exact to 0.4 %: a histogram of 4096 bins,
/// 1e-4..1e2).
///
/// With constraints, constraint.1 and so on are the mean absolute values of their expressions, in physical units.
///
/// After make_ensemble() these are the metrics of the members' mean prediction. Further metrics, over all outputs and
/// per output, are member_rmse (root of the members' mean squared error), spread, crps, spread_skill, coverage50,
/// coverage90, coverage95; and a table, the rank histogram. docs/models/emulator.md defines them.
class EmulatorTask : public ShardTask, public EnsembleTask, public FirstWeights {
 public:
  struct Options {
    EmulatorArch arch;  ///< the data set determines n_in and n_out
    EmulatorLoss loss;
    DType dtype = DType::f32;
    std::uint64_t seed = 0;
    BiasInit bias_init = BiasInit::zeros;
    bool bootstrap = false;  ///< train on rows drawn with replacement by the seed, as many as there are
    std::int64_t sensitivity_rows = 100;
  };
  /// errors  usage: loss.jacobian without Jacobians in the data set; a constraint that does not parse; see
  ///         EmulatorLoss::check
  EmulatorTask(Options options, EmulatorData data);

  const char* kind() const override { return "emulator"; }
  ParamStore& params() override { return emulator_.params(); }
  /// On a GPU the data set moves too, if it takes at most half of the free memory; kernels then gather the samples.
  /// errors usage: a constraint on a GPU
  void move_to(Device device) override;
  std::int64_t size(Split split) const override;
  ShardLoss loss(Tape& tape, const Shard& shard) const override;
  const DrawnShard& draw(Arena& host, const Shard& shard) const override;
  bool draws() const override { return true; }
  RowSource* row_source() const override { return data_.x.source(); }
  void reads(const Shard& shard, std::vector<std::int64_t>& rows) const override;
  void reads(Split split, std::int64_t first, std::int64_t count, std::vector<std::int64_t>& rows) const override {
    for (std::int64_t i = first; i < first + count; ++i) rows.push_back(data_.row_of(split, i));
  }
  /// Only with the data set on a GPU, and without convolution and without smoothness, Jacobian and constraint terms.
  std::optional<DenseNetwork> dense_network() const override;
  static constexpr std::int64_t kLeastShard = 128;  ///< fewer rows do not amortise packing the weights
  std::int64_t least_shard() const override { return kLeastShard; }
  std::int64_t sum_count() const override;
  void evaluate(Tape& tape, Split split, std::int64_t first, std::int64_t count, double* sums) const override {
    score(tape, split, first, count, nullptr, sums);
  }
  /// Persistence (an output that is not also an input has its training mean), and linear regression.
  std::vector<Baseline> baselines() const override;
  std::vector<Metric> metrics(Split split, const std::vector<double>& sums) const override;
  std::string protocol(Split split) const override { return join(size(split), " rows"); }
  std::vector<MetricTable> tables(Split split, const std::vector<double>& sums) const override;
  std::vector<ParamStore*> make_ensemble(std::int64_t count) override;
  void require_member(const H5File& checkpoint) const override;
  /// Rounds the weights of the other members of an ensemble to the storage.
  void begin_evaluation() override;
  /// sensitivity_metrics() of the first validation rows: jacobian.frobenius_norm, .mean_abs_gradient, .spectral_norm,
  /// .stability, .max_gradient, .gradient_std, .feature.NAME, .most_sensitive_feature, .max_sensitivity
  std::vector<Metric> diagnostics() const override;
  /// Three products per layer for the pass and for each direction of the Jacobian, less one: inputs need no gradient.
  SampleWork work() const override;
  /// Applies the checkpoint's normalisation, where it is another one, to the weights of the first and last layer.
  std::string adapt_from(const H5File& checkpoint) override;
  void save(H5File& file) const override;
  std::uint64_t data_hash() const override { return data_.hash; }

  Emulator& emulator() { return emulator_; }
  const Emulator& emulator() const { return emulator_; }
  const EmulatorData& data() const { return data_; }
  EmulatorMetadata metadata() const;

 protected:
  struct Rows {
    Tensor z, t;          ///< normalised inputs (N, n_in), and targets (N, n_out) in real_dtype(), in the tape's memory
    Tensor weights = {};  ///< (N) in real_dtype(), or empty
  };
  /// Replaces the data set by training samples in the caller's memory; as EmulatorData.
  /// errors  Error (usage): weights with a loss of several terms
  void set_samples(const Tensor& x, const Tensor& y, const Tensor& order, const Tensor& weights);
  Rows normalised(Tape& tape, std::span<const std::int64_t> rows) const;
  /// The training rows of a shard.
  ops::RowDraw rows_of(const Shard& shard) const;
  /// draw() of these rows.
  const DrawnShard& draw_rows(Arena& host, const ops::RowDraw& order, const Shard& shard) const;

 private:
  /// The inputs of a training pass for rows of the data set, in host memory that kernels can read.
  struct Batch;
  /// shard  keys of the random directions
  const Batch& batch_of(Arena& host, std::span<const std::int64_t> rows, const Shard& shard) const;

  /// Evaluates the network (guess null) or a baseline.
  void score(Tape& tape, Split split, std::int64_t first, std::int64_t count, const AffineGuess* guess,
             double* sums) const;

  /// The data set in GPU memory, for kernels that gather samples in the type of the weights; null if not used.
  const ops::SampleTable* table() const;
  Rows rows_in(Arena& host, DType dtype, std::span<const std::int64_t> rows) const;
  std::int64_t members() const { return 1 + static_cast<std::int64_t>(others_.size()); }
  emulator_metrics::Layout layout() const;  ///< of the sums
  /// Returns the sum of v_i^2 over the constraints' values v_i at these rows. Writes its gradient with respect to y to
  /// `dy` unless that is empty, and adds |v_i| to `sizes` unless that is null. y, dy (rows, n_out), normalised, in host
  /// memory.
  double constrain(std::span<const std::int64_t> rows, const Tensor& y, const Tensor& dy, double* sizes) const;
  /// Checks the constraints' values at a row, for its physical prediction y, and the gradient of their squares.
  /// errors  Error (usage) if one is not finite although y is
  void require_in_domain(std::int64_t row, const std::vector<double>& y, const std::vector<double>& values,
                         const std::vector<double>& slope) const;

  Options options_;
  EmulatorData data_;
  Emulator emulator_;
  std::vector<OwnedTensor> on_gpu_;  ///< the arrays of table_
  std::optional<ops::SampleTable> table_;
  std::shared_ptr<const Constraint> constraint_;  ///< null: none
  std::vector<Emulator> others_;                  ///< members of the ensemble after the first one, emulator_
  std::int64_t aice_ = -1;                        ///< index of the output aice; -1 if there is none
  double whole_ice_ = 1;                          ///< what 1 is in its units: 100 for %
};

}  // namespace lockstep
