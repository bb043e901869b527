#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/report/run_log.hpp"

namespace lockstep {

/// The records of a run in bounded memory, for the report. If a series grows past its limit, neighbouring points are
/// merged. A merged point has what plots need: means, extremes of the loss, sums of seconds.
class RunHistory {
 public:
  /// A measurement over all GPUs and over the records of a point.
  struct GpuRange {
    double mean = 0, low = 0, high = 0;
    std::int64_t count = 0;
  };
  struct TrainPoint {
    std::int64_t step = 0;  ///< last step of the records in this point
    double epoch = 0;
    double loss = 0, loss_min = 0, loss_max = 0;
    double lr = 0, grad_norm = 0, samples_per_s = 0, seconds = 0;
    std::int64_t records = 0, norms = 0;
    std::vector<double> phases;            ///< seconds, in the order of phase_names()
    std::map<std::string, GpuRange> gpus;  ///< by the name of the measurement
  };
  struct EvalPoint {
    std::int64_t step = 0;
    double epoch = 0, value = 0;
  };
  /// One split: the series "loss" if its evaluations have one, then the metrics in order of appearance.
  struct Evaluation {
    std::vector<std::string> names;
    std::map<std::string, std::vector<EvalPoint>> series;
    std::map<std::string, EvalPoint> last, lowest, highest;
    std::map<std::string, EvalPoint> best;  ///< `last` of the last evaluation with EvalRecord::best
  };

  void add(const StepRecord& record);
  void add(const EvalRecord& record);

  const std::vector<TrainPoint>& training() const { return training_; }
  /// The same in at most `most` points.
  std::vector<TrainPoint> condensed(std::size_t most) const;
  const std::vector<std::string>& phase_names() const { return phase_names_; }
  const std::map<std::string, Evaluation>& evaluations() const { return evaluations_; }
  bool empty() const { return training_.empty() && evaluations_.empty(); }
  std::int64_t last_step() const { return last_step_; }
  double seconds() const { return seconds_; }  ///< of all training records
  double evaluation_seconds() const { return evaluation_seconds_; }

 private:
  static constexpr std::size_t kLimit = 1200;
  std::vector<TrainPoint> training_;
  std::int64_t per_point_ = 1;  ///< records per full training point
  std::map<std::string, std::int64_t> per_eval_point_;
  std::map<std::string, std::int64_t> in_last_;
  std::vector<std::string> phase_names_;
  std::map<std::string, Evaluation> evaluations_;
  std::int64_t last_step_ = 0;
  double seconds_ = 0, evaluation_seconds_ = 0;
};

}  // namespace lockstep
