#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/har_data.hpp"
#include "lockstep/models/har.hpp"
#include "lockstep/models/model.hpp"

namespace lockstep {

/// What is done to training windows before they are embedded; every draw is keyed by seed, epoch, window and channel.
struct HarAugment {
  bool pictures = false;  ///< mirror, brightness, contrast and turn of each picture (see har_pictures.hpp)
  bool shift = false;     ///< windows begin anywhere up to the beginning of the one that follows in the recording
  double turn = 0;     ///< degrees: standard deviation of a turn of all triads of axes, about an axis drawn at random
  double stretch = 0;  ///< standard deviation of the factor of each triad, or channel without one
};

/// A classifier of activities with its data.
///
/// Metrics: accuracy and loss (with the smoothed labels), macro_f1, weighted_f1, macro_precision, macro_recall; per class
/// NAME: accuracy.NAME (its recall), precision.NAME, f1.NAME, support.NAME; in mode `independent` accuracy counts windows by
/// the mean of their channels' log-probabilities, and channel_accuracy single channels. Ties go to the lower class; what
/// has no sample counts as 0. The table "confusion" has the true classes as rows.
class HarModel final : public Model {
 public:
  struct Options {
    HarArch arch;  ///< channels, length and classes are taken from the data
    HarAugment augment;
    double smoothing = 0.1;  ///< of labels
    double percent = 100;    ///< of the training windows of each class that are used
    DType dtype = DType::f32;
    std::uint64_t seed = 0;
  };
  HarModel(Options options, HarData data);

  const char* kind() const override { return "har"; }
  ParamStore& params() override { return net_.params(); }
  std::int64_t size(Split split) const override;
  ShardLoss loss(Tape& tape, const Shard& shard) const override;
  std::int64_t sum_count() const override;
  void evaluate(Tape& tape, Split split, std::int64_t first, std::int64_t count, double* sums) const override;
  std::vector<Metric> metrics(Split split, const std::vector<double>& sums) const override;
  std::vector<MetricTable> tables(Split split, const std::vector<double>& sums) const override;
  double flops_per_sample() const override { return net_.arch().training_flops(); }
  std::vector<SampleUnit> units() const override;
  std::int64_t evaluation_block() const override;
  void save(H5File& file) const override;
  std::uint64_t data_hash() const override { return data_.hash; }

  Har& network() { return net_; }
  const Har& network() const { return net_; }
  const HarData& data() const { return data_; }
  /// Numbers of the training windows, ascending.
  std::span<const std::int32_t> train_windows() const { return train_; }

 private:
  /// What is encoded: one channel of one window.
  struct Sequence {
    std::int32_t window, channel;
  };
  bool per_channel() const { return net_.arch().mode == HarArch::Mode::independent; }
  /// Channels of a window that are encoded.
  std::int64_t encoded() const;
  std::span<const Sequence> sequences_of(Tape& tape, std::span<const std::int32_t> windows) const;
  /// With a shard, augmented as its epoch says.
  Var embed(Tape& tape, std::span<const Sequence> sequences, const Shard* shard) const;
  Var embed_signals(Tape& tape, std::span<const Sequence> sequences, const Shard* shard) const;
  Var embed_pictures(Tape& tape, std::span<const Sequence> sequences, const Shard* shard) const;
  /// All channels of a window (C, L); with a shard as its augmentations leave them, in `scratch`.
  const double* window(std::int64_t number, const Shard* shard, double* scratch) const;

  Options options_;
  HarData data_;
  std::vector<std::int32_t> train_;
  std::vector<std::int32_t> triads_;  ///< first channel of each three that are the axes of one sensor
  Har net_;
};

}  // namespace lockstep
