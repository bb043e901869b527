#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/optim/schedule.hpp"
#include "lockstep/train/loss_scale.hpp"

namespace lockstep {

/// Named series, one value per record, NaN where a record has none: the history of a run.
class History {
 public:
  /// Appends a record; series that it does not name get NaN.
  void append(const std::vector<std::pair<std::string, double>>& record);
  std::int64_t size() const { return size_; }
  /// All values of a series, or nothing when no record ever named it.
  const std::vector<double>& series(const std::string& name) const;
  /// The values of a series that are not NaN, oldest first.
  std::vector<double> known(const std::string& name) const;
  const std::map<std::string, std::vector<double>>& all() const { return series_; }
  void restore(std::map<std::string, std::vector<double>> series);

 private:
  std::map<std::string, std::vector<double>> series_;
  std::int64_t size_ = 0;
};

/// Where a run stands, beside its weights and the optimizer's vectors. A resumed run continues from exactly here.
struct TrainState {
  std::int64_t step = 0;      ///< optimizer steps done
  std::int64_t epoch = 0;     ///< epochs completed
  std::int64_t position = 0;  ///< samples of the running epoch already used
  std::int64_t epoch_steps = 0;
  double epoch_loss = 0, epoch_weight = 0;  ///< sums of the running epoch
  double epoch_batch_means = 0;             ///< sum over its steps of the mean loss: the unweighted figure
  double epoch_gradient_norms = 0;
  double best = 0;               ///< best figure of the validation split so far (eval.best), once there is one
  std::int64_t best_epoch = -1;  ///< epochs completed then; -1: none yet
  bool scored = false;           ///< there has been an evaluation with a finite figure
  double stop_best = 0;          ///< the last figure that was better by more than stop.min_delta
  std::int64_t since_best = 0;   ///< evaluations since then
  double seconds = 0;            ///< of training, over all sessions of the run
  LossScale loss_scale;          ///< of fp16 runs
  bool finished = false;         ///< the run had come to its end
  std::string stop_reason;       ///< why, "" while it has not
  LrSchedule::State schedule;
  History history;

  /// Calls f(name, field) for every number and text, in one fixed order: what files and messages hold.
  template <class State, class F>
  static void visit(State& s, F&& f) {
    f("step", s.step), f("epoch", s.epoch), f("position", s.position);
    f("epoch_steps", s.epoch_steps), f("epoch_loss", s.epoch_loss), f("epoch_weight", s.epoch_weight);
    f("epoch_batch_means", s.epoch_batch_means), f("epoch_gradient_norms", s.epoch_gradient_norms);
    f("best", s.best), f("best_epoch", s.best_epoch), f("since_best", s.since_best);
    f("scored", s.scored), f("stop_best", s.stop_best);
    f("loss_scale", s.loss_scale.value), f("loss_scale_steps", s.loss_scale.steps);
    f("seconds", s.seconds), f("finished", s.finished), f("stop_reason", s.stop_reason);
    f("schedule_best", s.schedule.best), f("schedule_bad", s.schedule.bad), f("schedule_drops", s.schedule.drops);
  }
};

/// A state as bytes, for the other ranks, and back. errors  Error (internal) if the bytes are none
std::vector<std::byte> pack(const TrainState& state);
TrainState unpack(std::span<const std::byte> bytes);

}  // namespace lockstep
