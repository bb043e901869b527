#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/train/task.hpp"

namespace lockstep {

class SampleTask;

/// The same weights on data without some of its information, to measure the value of that information: "graph removed".
struct Control {
  std::string name;
  std::function<std::unique_ptr<SampleTask>()> make;  ///< on the CPU; samples are numbered as the task's
};

/// A task that has metrics of a single sample, by which two networks are compared sample by sample.
class SampleTask : public Task {
 public:
  /// As evaluate(), with sums of their own for each sample: those of sample first + i begin at sums[i * sum_count()].
  virtual void evaluate_each(Tape& tape, Split split, std::int64_t first, std::int64_t count, double* sums) const = 0;
  /// The metrics to compare: each is the mean over the samples of what metrics() returns for one sample's sums.
  virtual std::vector<std::string> compared_metrics() const = 0;
  /// Controls for evaluations of these weights. They must not outlive the task.
  virtual std::vector<Control> controls() const { return {}; }
};

}  // namespace lockstep
