#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/optim/loss_scale.hpp"
#include "lockstep/optim/schedule.hpp"

namespace lockstep {

/// The history of a run: named series with one value per record, NaN where a record has none.
class History {
 public:
  /// Appends a record. Series that it does not name get NaN.
  void append(const std::vector<std::pair<std::string, double>>& record);
  /// Drops the last record, and the series that only it has.
  void drop_last();
  std::int64_t size() const { return size_; }
  /// All values of a series; empty if no record names it.
  const std::vector<double>& series(const std::string& name) const;
  /// The values of a series that are not NaN, oldest first.
  std::vector<double> known(const std::string& name) const;
  const std::map<std::string, std::vector<double>>& all() const { return series_; }
  void restore(std::map<std::string, std::vector<double>> series);

 private:
  std::map<std::string, std::vector<double>> series_;
  std::int64_t size_ = 0;
};

/// The progress of a run: with the weights and the optimizers' vectors, all that a resumed run needs to continue
/// exactly.
struct TrainState {
  std::int64_t step = 0;      ///< optimizer steps done
  std::int64_t epoch = 0;     ///< epochs completed
  std::int64_t position = 0;  ///< in the current epoch, up to EpochLength::positions
  std::int64_t epoch_steps = 0;
  double epoch_loss = 0, epoch_weight = 0;  ///< sums over the steps of the current epoch
  double epoch_batch_means = 0;             ///< sum of the steps' mean losses, for the unweighted mean
  double epoch_gradient_norms = 0;          ///< sum of the steps' gradient norms
  double best = 0;                          ///< best value of eval.best on the validation split
  std::int64_t best_epoch = -1;             ///< epochs completed at `best`; -1: none yet
  std::int64_t best_step = -1;              ///< steps done at `best`; -1: none yet, or unknown
  std::int64_t evaluated_step = -1;         ///< steps done at the last evaluation of eval.every or eval.every_steps
  bool scored = false;                      ///< whether an evaluation had a finite value
  double stop_best = 0;                     ///< last value that improved by more than stop.min_delta
  std::int64_t since_best = 0;              ///< evaluations since stop_best
  double seconds = 0;                       ///< training time, over all starts of the run
  double checkpoint_seconds = 0;            ///< time of the slowest checkpoint, from the copy to the pruning
  double evaluation_seconds = 0;            ///< time of the last evaluation
  LossScale loss_scale;                     ///< fp16 only
  bool finished = false;                    ///< whether the run has ended
  std::string stop_reason;                  ///< why it ended; "" before
  std::string row_decisions = {};           ///< ShardedStep::row_decisions() since the first step
  std::vector<std::string> products = {};   ///< with run.tune_products: ops::product_choices() of all ranks
  LrSchedule::State schedule;
  History history;

  /// Whether files of earlier versions lack this field of visit().
  static bool is_recent(std::string_view name) {
    return name.starts_with("loss_scale") || name == "best_step" || name == "evaluated_step" ||
           name == "checkpoint_seconds" || name == "evaluation_seconds" || name == "row_decisions";
  }
  /// Calls f(name, field) for every number and text, in the order of checkpoints and messages.
  template <class State, class F>
  static void visit(State& s, F&& f) {
    f("step", s.step);
    f("epoch", s.epoch);
    f("position", s.position);
    f("epoch_steps", s.epoch_steps);
    f("epoch_loss", s.epoch_loss);
    f("epoch_weight", s.epoch_weight);
    f("epoch_batch_means", s.epoch_batch_means);
    f("epoch_gradient_norms", s.epoch_gradient_norms);
    f("best", s.best);
    f("best_epoch", s.best_epoch);
    f("best_step", s.best_step);
    f("evaluated_step", s.evaluated_step);
    f("since_best", s.since_best);
    f("scored", s.scored);
    f("stop_best", s.stop_best);
    f("loss_scale", s.loss_scale.value);
    f("loss_scale_steps", s.loss_scale.steps);
    f("seconds", s.seconds);
    f("checkpoint_seconds", s.checkpoint_seconds);
    f("evaluation_seconds", s.evaluation_seconds);
    f("finished", s.finished);
    f("stop_reason", s.stop_reason);
    f("row_decisions", s.row_decisions);
    f("schedule_best", s.schedule.best);
    f("schedule_bad", s.schedule.bad);
    f("schedule_drops", s.schedule.drops);
  }
};

/// Converts a state to bytes (CBOR) for a broadcast, and back.
std::string pack(const TrainState& state);
TrainState unpack(const std::string& bytes);

}  // namespace lockstep
