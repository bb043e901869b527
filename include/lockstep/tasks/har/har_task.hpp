#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/named.hpp"
#include "lockstep/device/kernel_arrays.hpp"
#include "lockstep/models/har/har.hpp"
#include "lockstep/ops/sensor_windows.hpp"
#include "lockstep/tasks/har/har_data.hpp"
#include "lockstep/train/first_weights.hpp"
#include "lockstep/train/task.hpp"

namespace lockstep {

/// Augmentation of training windows. Draws depend on seed, epoch, window and channel.
struct HarAugment {
  bool pictures = false;  ///< mirror, brightness, contrast and rotation of each picture (see har_pictures.hpp)
  bool shift = false;     ///< start a window later, at most at the start of the next window of the recording
  double turn = 0;        ///< degrees: standard deviation of a rotation of all sensors about a random axis
  double stretch = 0;     ///< standard deviation of the factor of each sensor
};

/// How training compensates for classes with few windows.
enum class HarBalance : std::uint8_t {
  none,
  /// Each class has the same number of samples in an epoch, with the same total. The windows of a class are repeated in
  /// an order drawn for each epoch. Each repetition of a window has its own augmentation.
  sampling,
  /// The loss of a window of class k counts N / (K N_k) times: N windows, N_k of them of class k, K classes with
  /// windows. The loss of a batch is divided by the sum of these weights. differs from
  /// torch.nn.CrossEntropyLoss(weight, label_smoothing), which weights the smoothed part by the other classes
  weights,
};
constexpr auto names_of(HarBalance) { return std::array{"none", "sampling", "weights"}; }

/// The number of training windows that HarTask uses of a class: `percent` of them, at least one.
std::int64_t windows_kept(std::int64_t of_class, double percent);

/// An activity classifier and its data set.
///
/// Metrics: accuracy and loss (with the smoothed labels), macro_f1, weighted_f1, macro_precision, macro_recall; per
/// class NAME: accuracy.NAME (its recall), precision.NAME, f1.NAME, support.NAME. The macro averages are over the
/// classes that have windows in the split. In mode `independent`, accuracy counts windows, classified by the mean
/// log-probability of their channels, and channel_accuracy counts channels. Ties go to the lower class; a ratio without
/// samples is 0. The table "confusion" has the true classes as rows.
class HarTask final : public ShardTask, public FirstWeights {
 public:
  struct Options {
    HarArch arch;  ///< the data set determines channels, length and classes
    HarAugment augment;
    double smoothing = 0.1;  ///< label smoothing
    double percent = 100;    ///< share of the training windows of each class to use
    HarBalance balance = HarBalance::none;
    DType dtype = DType::f32;
    std::uint64_t seed = 0;
  };
  HarTask(Options options, HarData data);

  const char* kind() const override { return "har"; }
  ParamStore& params() override { return net_.params(); }
  std::int64_t size(Split split) const override;
  ShardLoss loss(Tape& tape, const Shard& shard) const override;
  const DrawnShard& draw(Arena& host, const Shard& shard) const override;
  bool draws() const override { return true; }
  std::int64_t least_tree_shard() const override { return least_tree_shard(net_.arch()); }
  /// As many samples as the encoder takes sequences of a window with all channels.
  static std::int64_t least_tree_shard(const HarArch& arch) { return arch.channels / arch.sequences(); }
  RowSource* row_source() const override { return data_.signals.source(); }
  void reads(const Shard& shard, std::vector<std::int64_t>& rows) const override;
  void reads(Split split, std::int64_t first, std::int64_t count, std::vector<std::int64_t>& rows) const override {
    for (const std::int64_t window : windows_of(split, first, count)) rows.push_back(window);
  }
  /// On a GPU with enough free memory the windows move, too, and batches are made there.
  void move_to(Device device) override;
  std::int64_t sum_count() const override;
  void evaluate(Tape& tape, Split split, std::int64_t first, std::int64_t count, double* sums) const override;
  std::vector<Metric> metrics(Split split, const std::vector<double>& sums) const override;
  /// The majority class of the training windows (ties: the lower class), with the loss of the classes' frequencies; and
  /// the nearest training windows (see har_neighbours.hpp), without a loss. Without training windows none.
  std::vector<Baseline> baselines() const override;
  std::string protocol(Split split) const override {
    return join(size(split), " windows", per_channel() ? ", each by the mean of its channels" : "");
  }
  std::vector<MetricTable> tables(Split split, const std::vector<double>& sums) const override;
  SampleWork work() const override;
  std::int64_t evaluation_block() const override;
  /// The log-probabilities of windows, numbered over all splits, without dropout and augmentation; in mode
  /// `independent` the mean over the channels. shapes  out (windows, classes)
  void classify(Tape& tape, std::span<const std::int64_t> windows, std::span<double> out) const;
  std::string adapt_from(const H5File& checkpoint) override;
  void save(H5File& file) const override;
  std::uint64_t data_hash() const override { return data_.hash; }

  Har& network() { return net_; }
  const Har& network() const { return net_; }
  const HarData& data() const { return data_; }
  /// Numbers of the training windows, ascending.
  std::span<const std::int32_t> train_windows() const { return train_; }
  /// Factor of the loss of a class in training; 1 without HarBalance::weights.
  double class_weight(std::int64_t k) const { return class_weight_[k]; }
  /// The training window at position `i` of this epoch: train_windows()[i]; or, with HarBalance::sampling, a drawn
  /// window plus the number of all windows for each of its earlier occurrences in the epoch.
  std::int64_t drawn_window(std::int64_t i, std::uint64_t seed, std::int64_t epoch) const;

 private:
  /// The drawn_window() of a training sample.
  std::int64_t window_of(std::int64_t sample, const Shard& shard) const {
    return drawn_window(per_channel() ? sample / data_.channels() : sample, shard.seed, shard.epoch);
  }
  /// The windows of samples [first, first + count) of an evaluation.
  std::vector<std::int64_t> windows_of(Split split, std::int64_t first, std::int64_t count) const;
  /// An input sequence of the encoder: one channel of one window. In training, `window` is a drawn_window().
  struct Sequence {
    std::int64_t window, channel;
  };
  bool per_channel() const { return net_.arch().mode == HarArch::Mode::independent; }
  /// Number of channels of a window that are encoded.
  std::int64_t encoded() const;
  std::span<const Sequence> sequences_of(Arena& host, std::span<const std::int64_t> windows) const;
  /// The inputs of the encoder, in host memory that kernels can read.
  struct GpuInputs {
    std::span<const ops::WindowPick> picks;
    std::span<const ops::SensorSequence> sequences;
  };
  struct Inputs {
    GpuInputs on_gpu = {};            ///< signals, if the windows are in GPU memory
    Tensor patches = {};              ///< signals otherwise: (sequences, tokens, patch)
    ops::LinePictures pictures = {};  ///< with model.input = image
  };
  struct Batch;
  /// With a shard, windows are augmented for its epoch.
  Inputs inputs_of(Arena& host, std::span<const Sequence> sequences, const Shard* shard) const;
  Tensor signals(Arena& host, std::span<const Sequence> sequences, const Shard* shard) const;
  ops::LinePictures pictures(Arena& host, std::span<const Sequence> sequences, const Shard* shard) const;
  Var logits(Tape& tape, const Inputs& inputs, const HarDraws* draws) const;
  /// Without dropout and augmentation.
  Var logits(Tape& tape, std::span<const std::int64_t> windows) const {
    return logits(tape, inputs_of(tape.host_arena(), sequences_of(tape.host_arena(), windows), nullptr), nullptr);
  }
  GpuInputs gpu_inputs(Arena& host, std::span<const Sequence> sequences, const Shard* shard) const;
  static Philox window_draws(std::int64_t number, const Shard& shard);
  /// All channels of a window (C, L); with a shard, augmented into `scratch`.
  const double* window(std::int64_t number, const Shard* shard, std::span<double> scratch) const;
  std::span<double> window_scratch(Arena& host) const;

  Options options_;
  HarData data_;
  std::vector<std::int32_t> train_;
  std::vector<std::int32_t> following_;  ///< HarData::following without the windows that data.percent leaves out
  std::vector<std::vector<std::int32_t>> members_;  ///< training windows of each class that has some
  std::vector<std::int32_t> triads_;                ///< first channel of each x, y, z triad of a sensor
  std::vector<double> class_weight_;
  Har net_;
  Resident<double> resident_;  ///< the signals in GPU memory; empty if they are not there
};

}  // namespace lockstep
