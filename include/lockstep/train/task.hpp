#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/data/split.hpp"
#include "lockstep/report/metric.hpp"
#include "lockstep/step/shard_model.hpp"

namespace lockstep {

class Communicator;
class H5File;
class RowSource;
class TrainingProgram;
class World;
struct RunConfig;

/// A further unit in which a benchmark counts samples: "windows", "images".
struct SampleUnit {
  std::string name;
  double per_sample = 1;
};

/// One training sample, for benchmarks.
struct SampleWork {
  double flops = 0;  ///< floating-point operations in matrix products, forward and backward; 0: unknown
  std::vector<SampleUnit> units = {};
};

/// A baseline that needs no network, such as the most popular items; a trained network must be better.
struct Baseline {
  std::string name;  ///< "most popular items"
  /// As Task::evaluate(), with this baseline instead of the network's output. A sum that the baseline lacks is NaN.
  std::function<void(Tape& tape, Split split, std::int64_t first, std::int64_t count, double* sums)> evaluate;
};

/// A network with its data set, as the trainer sees it. Samples are numbered 0 .. size-1 within a split.
///
/// A task whose step is the gradient of a batch of samples derives from ShardTask. Other tasks have their own program.
class Task : public CheckpointedModel {
 public:
  virtual ParamStore& params() = 0;
  /// Moves the weights, and every other array that a pass reads, to `device`. A checkpoint may be loaded before or
  /// after.
  virtual void move_to(Device device) { params().move_to(device); }
  virtual std::int64_t size(Split split) const = 0;

  /// Creates the program that runs the steps of an epoch. errors  Error (usage): a batch that does not fit the data
  virtual std::unique_ptr<TrainingProgram> make_program(World& world, const RunConfig& config, int threads) = 0;

  /// The rows of the data set, if they may be divided over nodes; null: this process can read all of them. If they are
  /// not RowSource::whole(), callers fetch the rows that a pass reads() before it.
  virtual RowSource* row_source() const { return nullptr; }
  /// Appends the rows that evaluate() of these samples reads.
  virtual void reads(Split, std::int64_t /*first*/, std::int64_t /*count*/, std::vector<std::int64_t>& /*rows*/) const {
  }

  /// Number of sums of an evaluation. Ranks and threads evaluate chunks of a split; the sums (f64) of all chunks are
  /// added in a fixed order, so the metrics are the same on any number of ranks.
  virtual std::int64_t sum_count() const = 0;
  /// Whether evaluate() accepts the split. Some tasks have targets only for validation and test samples.
  virtual bool evaluates(Split) const { return true; }
  /// Whether test samples serve as validation samples because the data set has none of its own.
  virtual bool validates_on_test() const { return false; }
  /// One thread of every rank calls this before each evaluation, to compute values that all samples share.
  virtual void begin_evaluation() {}
  /// Adds the contributions of samples [first, first + count) of the split to sums (sum_count()). The tape does not
  /// record. Several threads call this at the same time.
  virtual void evaluate(Tape& tape, Split split, std::int64_t first, std::int64_t count, double* sums) const = 0;
  /// Samples of one forward pass of an evaluation. It bounds the memory, whatever the size of the split.
  virtual std::int64_t evaluation_block() const { return 1024; }
  /// The metrics of a whole split from its sums, the headline metric first.
  virtual std::vector<Metric> metrics(Split split, const std::vector<double>& sums) const = 0;
  /// Metrics of a split that are not sums, such as votes over samples of several ranks, computed on `threads` threads
  /// of every rank. Collective; the same on all ranks.
  virtual std::vector<Metric> collective_metrics(Communicator&, Split, int /*threads*/) const { return {}; }
  /// The names of collective_metrics().
  virtual std::vector<std::string> collective_metric_names() const { return {}; }
  /// How the metrics of a split are computed, for records: "2999 users, full ranking of 3266 items". Metrics are
  /// comparable if data set and protocol are the same.
  virtual std::string protocol(Split split) const;
  /// What a user should know about the configuration, for the first lines of a run and its report: topic and text.
  virtual std::vector<std::pair<std::string, std::string>> facts() const { return {}; }
  /// Tables from the same sums, such as a confusion matrix.
  virtual std::vector<MetricTable> tables(Split, const std::vector<double>&) const { return {}; }
  /// Baselines from the training samples alone, the same on every rank; collective if rows are divided. Their cost is
  /// bounded, or one pass over the data set. They must not outlive the task.
  virtual std::vector<Baseline> baselines() const { return {}; }
  /// Metrics of the network itself, computed every few epochs (the emulator's sensitivities). The same on every rank;
  /// collective if rows are divided.
  virtual std::vector<Metric> diagnostics() const { return {}; }
  /// A picture of the network at work on one test sample, for the report: title and SVG; empty for none.
  virtual std::pair<std::string, std::string> picture() const { return {}; }
  virtual SampleWork work() const { return {}; }
};

/// A task that trains on batches of samples: a step takes the next positions of the epoch's order and cuts them into
/// shards.
class ShardTask : public Task, public ShardModel {
 public:
  ParamStore& params() override = 0;
  using ShardModel::reads;
  using Task::reads;
  /// The ranges of the flat gradient whose norms make up its norm. Their cuts determine the order of the sum.
  virtual std::vector<FlatRange> norm_ranges() { return trainable_ranges(params()); }
  /// The gradient of the shards and one optimizer (ShardedProgram).
  std::unique_ptr<TrainingProgram> make_program(World& world, const RunConfig& config, int threads) override;
};

}  // namespace lockstep
