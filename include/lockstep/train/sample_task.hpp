#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/train/task.hpp"

namespace lockstep {

class SampleTask;

/// The same weights on data from which some information is removed, to measure its value: "graph removed".
struct Control {
  std::string name;
  std::function<std::unique_ptr<SampleTask>()> make;  ///< on the CPU; samples have the same numbers as the task's
};

/// A task with metrics of single samples, so that two networks can be compared sample by sample.
class SampleTask : public Task {
 public:
  /// As evaluate(), but with separate sums for each sample: the sums of sample first + i start at sums[i *
  /// sum_count()].
  virtual void evaluate_each(Tape& tape, Split split, std::int64_t first, std::int64_t count, double* sums) const = 0;
  /// The metrics to compare: each is the mean over samples of the value of metrics() for one sample's sums.
  virtual std::vector<std::string> compared_metrics() const = 0;
  /// Controls for evaluations of these weights. They must not outlive the task.
  virtual std::vector<Control> controls() const { return {}; }
};

}  // namespace lockstep
