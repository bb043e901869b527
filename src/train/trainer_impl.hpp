#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/stopwatch.hpp"
#include "lockstep/report/run_log.hpp"
#include "lockstep/train/evaluator.hpp"
#include "lockstep/train/sharded_step.hpp"
#include "lockstep/train/signals.hpp"
#include "lockstep/train/trainer.hpp"
#include "lockstep/train/training_program.hpp"
#include "train/best_weights.hpp"

namespace lockstep {

/// Sums over the steps since the last record of the log. Units: wall seconds of this rank.
struct Interval {
  Stopwatch watch;
  std::int64_t samples = 0, steps = 0;
  double loss = 0, weight = 0, batch_means = 0;
  double norm = 0, lr = 0;  ///< of the last step
  std::int64_t skipped = 0;
  bool scaled = false;
  double compute = 0, reduce = 0, update = 0, evaluate = 0, checkpoint = 0;
};

/// trainer.cpp has the loop, trainer_checkpoints.cpp writes and resumes, trainer_report.cpp logs.
struct Trainer::Impl {
  Impl(World& world, const RunConfig& config, Task& model);

  std::int64_t last_step() const;
  double epochs_done() const;
  bool writes() const { return world.rank() == 0; }
  Ema* average() { return ema ? &*ema : nullptr; }

  Outcome run();
  /// Adds a step to the state and to the interval of the log.
  void add(const StepResult& done, double lr);
  void check_weights();
  void end_epoch();
  void validate(std::vector<std::pair<std::string, double>>& record);
  /// StepFlags of this rank.
  unsigned flags();
  std::vector<Metric> evaluate_average(Split split, double* seconds, std::vector<MetricTable>* tables);
  /// The metric that eval.best names, else the first. errors  Error (usage): eval.best names none of them
  const Metric& deciding(const std::vector<Metric>& metrics) const;

  CheckpointParts parts(const TrainState& s, bool resumable);
  bool save(const std::filesystem::path& path);
  void save_step_file();
  void write_best();
  Outcome interrupt();
  Outcome finish();
  void resume(const std::filesystem::path& checkpoint);
  /// Broadcasts the elements of rank 0.
  void share(const Tensor& tensor, const char* what);
  std::string take_best_weights();

  std::vector<std::pair<std::string, std::string>> facts();
  /// What a user would not expect of the learning rate: "; the run ends within the warm-up ...", or "".
  std::string schedule_notes() const;
  void log_interval();
  void log_evaluation(Split split, const std::vector<Metric>& metrics, std::vector<MetricTable> tables, double seconds,
                      bool best);
  void report_final(const std::string& whose_weights);

  World& world;
  Communicator& comm;
  const RunConfig& config;
  Task& model;
  const int threads;
  std::unique_ptr<TrainingProgram> program;
  LrSchedule schedule;
  std::optional<Ema> ema;
  TrainState state;

  RunLog* log = nullptr;
  std::optional<CheckpointFolder> folder;
  const StopSignals* signals = nullptr;
  BestWeights best;
  Interval interval;
  Stopwatch session, since_checkpoint, since_best_file;
  double seconds_before = 0;      ///< training seconds of earlier sessions
  double checkpoint_seconds = 0;  ///< of the slowest checkpoint
  bool checkpoint_due = false;
  std::string stopped_by;  ///< set on the rank that requested the stop
};

/// The metric named "loss", or null.
const Metric* loss_of(const std::vector<Metric>& metrics);

}  // namespace lockstep
