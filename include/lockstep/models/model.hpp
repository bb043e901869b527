#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/sampler.hpp"
#include "lockstep/data/split.hpp"
#include "lockstep/nn/params.hpp"
#include "lockstep/nn/tape.hpp"

namespace lockstep {

class H5File;

/// The loss of one shard: a sum over its samples, on the tape, and what the global mean divides by.
struct ShardLoss {
  Var sum;            ///< scalar; its gradient with seed 1 is this shard's part of the gradient of the *sum*
  double weight = 0;  ///< rows, valid targets, windows: the gradient of a step is (sum over shards) / (sum of weights)
};

/// A named figure that an evaluation reports, and whether larger is better.
struct Metric {
  std::string name;
  double value = 0;
  bool larger_is_better = false;
};

/// Figures in rows and columns, such as a confusion matrix.
struct MetricTable {
  std::string name;  ///< "confusion"
  std::vector<std::string> rows, columns;
  std::vector<double> values;  ///< (rows, columns)
};

/// What a sample of a model also counts as: "windows", "images".
struct SampleUnit {
  std::string name;
  double per_sample = 1;
};

/// A network with its data, as the trainer sees it: samples are numbered 0..size-1 within a split, a step takes the
/// next positions of the epoch's order, and a shard of them is one call. Calls for different shards run at the same
/// time on different threads.
class Model {
 public:
  virtual ~Model() = default;
  virtual const char* kind() const = 0;
  virtual ParamStore& params() = 0;
  /// Takes the weights, and whatever else lives as long as the model and takes part in a pass, to the device that will
  /// compute; what a checkpoint holds may be loaded before or after.
  virtual void move_to(Device device) { params().move_to(device); }
  virtual std::int64_t size(Split split) const = 0;

  /// Forward pass of the training samples at the shard's positions of its epoch. On a GPU its operations may be put down
  /// before the step in front of it has ended, or in vain: what lives on from step to step is theirs to change, not the host's.
  /// One that waits for them cannot be put into a graph.
  virtual ShardLoss loss(Tape& tape, const Shard& shard) const = 0;

  /// Evaluation in pieces: sums (in double) that are added over pieces in a fixed order, so that the result is the same
  /// on any number of ranks.
  virtual std::int64_t sum_count() const = 0;
  /// Called once before each evaluation, by one thread on every rank: what all samples share.
  virtual void begin_evaluation() {}
  /// Adds to sums (sum_count()) what samples [first, first + count) of the split contribute. The tape does not record.
  virtual void evaluate(Tape& tape, Split split, std::int64_t first, std::int64_t count, double* sums) const = 0;
  /// Samples of one forward pass of an evaluation: bounds its memory, whatever the size of the split.
  virtual std::int64_t evaluation_block() const { return 1024; }
  /// The figures that the sums of a whole split amount to, the headline one first.
  virtual std::vector<Metric> metrics(Split split, const std::vector<double>& sums) const = 0;
  /// Figures that stand in rows and columns, from the same sums.
  virtual std::vector<MetricTable> tables(Split, const std::vector<double>&) const { return {}; }
  /// Figures about the network itself that are computed now and then (the emulator's sensitivities); the same on every
  /// rank, no communication.
  virtual std::vector<Metric> diagnostics() const { return {}; }
  /// A picture of what the network does with one test sample, as SVG for the report: title and drawing, or nothing.
  virtual std::pair<std::string, std::string> picture() const { return {}; }
  /// The fewest samples that are worth a shard of their own: fewer would leave vector units empty.
  virtual std::int64_t least_shard() const { return 1; }
  /// Floating-point operations of the matrix products of one training sample, forward and backward: what "% of peak"
  /// counts. 0 when unknown.
  virtual double flops_per_sample() const { return 0; }
  /// What else a benchmark counts beside samples.
  virtual std::vector<SampleUnit> units() const { return {}; }

  /// Writes what beside the weights is needed to use them without the training data: normalisation, names,
  /// architecture.
  virtual void save(H5File& file) const = 0;
  /// Of the data set's contents: equal on all ranks, and between a run and its continuation.
  virtual std::uint64_t data_hash() const = 0;
};

}  // namespace lockstep
