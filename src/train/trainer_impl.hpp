#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/stopwatch.hpp"
#include "lockstep/checkpoint/checkpoint_copy.hpp"
#include "lockstep/checkpoint/checkpoint_writer.hpp"
#include "lockstep/device/gpu_monitor.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/proof/proof_writer.hpp"
#include "lockstep/report/run_log.hpp"
#include "lockstep/step/sharded_step.hpp"
#include "lockstep/train/evaluator.hpp"
#include "lockstep/train/profiler.hpp"
#include "lockstep/train/signals.hpp"
#include "lockstep/train/trainer.hpp"
#include "lockstep/train/training_program.hpp"

namespace lockstep {

/// Sums over the steps since the last record of the log. Units: wall seconds of this rank.
struct Interval {
  Stopwatch watch;
  std::int64_t samples = 0, steps = 0;
  double loss = 0, weight = 0, batch_means = 0;
  double norm = 0, lr = 0;  ///< of the last step
  std::int64_t skipped = 0;
  bool scaled = false;
  double compute = 0, reduce = 0, update = 0, evaluate = 0, checkpoint = 0, proof = 0;
  PhaseSeconds phases() const {
    return {{"forward_backward", compute}, {"reduce", reduce},         {"update", update},
            {"evaluate", evaluate},        {"checkpoint", checkpoint}, {"proof", proof}};
  }
};

/// An evaluation; without metrics if a signal ended it.
struct Evaluation {
  std::vector<Metric> metrics;
  std::vector<MetricTable> tables;
  double seconds = 0;
};

/// The job of the writer thread.
struct Saving {
  std::filesystem::path path;  ///< checkpoint; "": only the best weights
  std::int64_t step = 0;
  std::int64_t best_place = 0;  ///< rank among the best of the weights in best_writing; 0: none
  bool sharded = false;
  std::string number = {}, mark = {};  ///< of a sharded checkpoint and of this rank's part
  double copy_seconds = 0;
  std::string unsynced = {};  ///< why records of the run are not on the disk; "" if they are
};

/// trainer.cpp has the loop, trainer_checkpoints.cpp writes and resumes, trainer_proof.cpp proves and replays,
/// trainer_report.cpp logs.
struct Trainer::Impl {
  Impl(World& world, const RunConfig& config, Task& model);

  std::int64_t last_step() const;
  double epochs_done() const;
  bool writes() const { return world.rank() == 0 && !replays; }
  Ema* average() { return ema ? &*ema : nullptr; }
  /// Whether the program's GPU products are timed.
  bool tunes() const { return config.run.tune_products && model.params().device().is_cuda(); }

  /// The metric of the validation samples that selects the best weights. errors  as deciding()
  std::string decides() const;
  Outcome run();
  /// Begins to record if the next step is the first of `profiled`. Collective.
  void begin_profile();
  /// Ends the recording, if there is one, and writes the timeline. Collective.
  void end_profile();
  /// The interval of the log at the start. Without train.log_every it is the epoch, of which the state has the losses.
  Interval first_interval() const;
  /// Runs the next step and adds it to the state and to the interval of the log. Collective.
  void step();
  void add(const StepOutcome& done);
  /// TrainingProgram::settle(), and adds the outcome. Call it before reading the state's sums, the weights or the
  /// optimizers. Collective.
  void settle(UpTo what);
  void check_weights();
  /// Whether a checkpoint now costs less than 1 % of the time since the last one. Collective.
  bool checkpoint_is_cheap();
  /// Whether an evaluation follows the step that has just ended: by eval.every_steps, or by eval.every after an epoch.
  bool evaluation_due() const;
  /// Ends the epoch after its last step, and evaluates if it is due. Returns false, and changes nothing, if a signal
  /// ended the evaluation. Collective.
  bool end_step();
  bool end_epoch();
  /// An evaluation with a record of its own in the history. Returns as end_step().
  bool evaluate_between(bool last = false);
  /// Evaluates the last weights of a run, unless end_step() has. Returns false if a signal ended the evaluation, or if
  /// run.max_hours leaves no time.
  bool evaluate_last();
  /// Applies an evaluation of the validation samples to the state, under World::change(); end_evaluation() follows.
  ///
  /// last  of evaluate_last(): not for the schedule and the stopping rules, which a longer run would not call here
  void record_evaluation(const Evaluation& found, std::vector<std::pair<std::string, double>>& record, bool last);
  /// Adds the sensitivity metrics that are due after this evaluation. Collective.
  void add_diagnostics(std::vector<Metric>& metrics);
  /// Keeps the weights if they are among the best, and logs the evaluation. Collective.
  void end_evaluation(const Evaluation& found);
  /// StepFlags of this rank.
  unsigned flags();
  /// Whether run.max_hours leaves no time for a checkpoint and `reserve_s` more seconds.
  bool time_is_over(double reserve_s) const;
  /// Whether run.max_hours leaves rank 0 no time for an evaluation of `reserve_s` seconds. Never at the first step of a
  /// start. Collective.
  bool too_late_to_evaluate(double reserve_s);
  Evaluation evaluate_average(Split split, std::int64_t most_samples);
  /// The metric that eval.best names, else the first. errors  Error (usage): eval.best names none of them
  const Metric& deciding(const std::vector<Metric>& metrics) const;

  CheckpointParts parts(const TrainState& s, bool resumable);
  /// Waits for the previous checkpoint, copies the state and starts to write it while training continues. Collective.
  ///
  /// in_place  do not copy; wait until the state is written
  void save(const std::filesystem::path& path, bool in_place);
  /// Writes the state. Returns whether it was written. Collective.
  bool save_now(const std::filesystem::path& path);
  /// Waits for the writers of all ranks. Ends the job if they make no progress for dist.timeout. Collective.
  void await_writers();
  /// Handles the result of the writers, which have ended. Collective for a sharded checkpoint.
  void complete();
  /// Copies the weights if they are among the best. Rank 0 writes the copy if it is time, other ranks in rescue().
  void keep_best(const Metric& decides, bool better);
  void save_best();  ///< writes the best weights that no file has yet
  void write_best(const CheckpointCopy& weights, std::int64_t place, std::int64_t step) const;
  void start_writing(Saving what);
  /// errors  Error (internal) on rank 0: the run directory was moved, replaced or removed (says where its last
  ///         checkpoint is), or another run has taken it over
  void require_run_directory() const;
  /// Restores the best files of the state's checkpoint. Forgets the best evaluation if best.h5 is missing, damaged or
  /// of another step. Collective.
  void check_best();
  /// Registers rescue(). Collective.
  void prepare_rescue();
  /// Copies the state for rescue() and decides when the next copy is due. Collective.
  void copy_for_rescue();
  /// Whether rescue() finds the state of all ranks in the memory of this one, where the last step has left it. That of a
  /// GPU may hang when a rank is lost. Call it as TrainingProgram::settle_alone().
  bool holds_state();
  /// Writes the state of the last finished step, or of the last copy, because another rank was lost. From a helper
  /// thread, under World::change(). Returns whether a new start continues from it.
  bool rescue();
  Outcome interrupt();
  Outcome finish();
  void resume(const std::filesystem::path& checkpoint);
  /// Takes the algorithms of products from the state.
  void recall_products();
  /// Broadcasts the elements of rank 0.
  void share(const Tensor& tensor, const char* what);
  std::string take_best_weights();
  /// When the best evaluation was: "epoch 3", or "step 22" within an epoch.
  std::string best_moment() const;
  void start_from(const std::filesystem::path& checkpoint);

  /// Starts or continues the proof chain of the run. Collective.
  void open_proof(const std::filesystem::path& dir);
  ProofRun proof_run() const;
  /// The link of the current state. Collective.
  ProofLink link();
  /// Compares the links of all ranks. Returns false if one differs, after go_back(). Collective.
  bool agree_on(const ProofLink& mine);
  /// agree_on() the current state, unless done for this step. Call it before any result that a faulty rank would spoil.
  bool ranks_agree();
  /// Adds the link of this step if it is due, or the run ends. Returns as agree_on(). Collective.
  /// errors  Error (data): a run continues from another state than its chain has recorded
  bool prove(bool ends);
  /// Continues from the last checkpoint after a difference between the ranks.
  /// errors  Error (internal): the same steps have been repeated before
  void go_back(const std::string& difference);
  Replayed replay(const ProofChain& chain, std::int64_t until);

  std::vector<std::pair<std::string, std::string>> facts();
  /// Unexpected effects of the schedule: "; the run ends within the warm-up ...", or "".
  std::string schedule_notes() const;
  void log_interval();
  /// Opens a monitor of each GPU on the first rank that uses it, and logs a reason if a GPU cannot be read.
  /// Collective.
  void open_monitors();
  /// The reading of this rank's GPU; without values if another rank reads it, or none does.
  GpuReading read_gpu();
  /// Adds values of all ranks for the steps since the last record: the slowest rank and the GPUs. Collective.
  void gather(StepRecord& record, const GpuReading& gpu);
  /// Adds the wall time of this start by phase to the report, and logs it.
  void report_time();
  std::string paying(const PhaseSeconds& times) const;
  /// weights  as EvalRecord
  void log_evaluation(Split split, const Evaluation& found, std::int64_t most_samples, bool best,
                      const std::string& weights = {});
  /// Returns false if a signal ended it.
  bool report_final(const std::string& whose_weights);

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
  std::optional<OpenedDirectory> run_dir;  ///< on ranks that see it
  const StopSignals* signals = nullptr;
  bool proves = false;                     ///< whether the run has a chain
  bool replays = false;                    ///< nothing is written
  std::optional<ProofWriter> proof;        ///< on rank 0
  std::int64_t proof_from = 0;             ///< steps done before this start, or before the last go_back()
  std::int64_t agreed_at = -1;             ///< last step after which the ranks were found equal
  std::int64_t repeated_to = -1;           ///< last step that has been computed twice
  CheckpointCopy copy;                     ///< for the checkpoint that the writer writes
  CheckpointCopy best_copy, best_writing;  ///< the best weights, and the copy that the writer writes
  CheckpointCopy rescue_copy;              ///< of an earlier step, unless holds_state()
  std::int64_t rescue_copy_due = -1;       ///< step at which it is taken; -1: never
  bool copies_logged = false;
  bool best_pending = false;    ///< best_copy has not been written
  std::int64_t best_place = 1;  ///< of best_copy among all evaluations
  std::optional<Saving> saving;
  bool written = true;                 ///< whether the last checkpoint was written
  std::filesystem::path last_written;  ///< file name of the last checkpoint of this start
  std::filesystem::path resumed_from;  ///< the checkpoint of the last resume(); "": none
  CheckpointWriter writer;             // declared after the members that its thread uses
  Interval interval;
  PhaseSeconds logged;                ///< of this start, until the last record
  bool sends_buckets = false;         ///< ProgramFacts::sends_buckets
  bool told_of_waiting = false;       ///< the log has said that communication takes most of the time
  std::optional<GpuMonitor> monitor;  ///< of the GPU that this rank reads
  Stopwatch session, since_checkpoint, since_best_file;
  double seconds_before = 0;  ///< training seconds of earlier starts
  StepRange profiled;
  std::optional<Profiler> profiler;  ///< while it records
  bool checkpoint_due = false;
  double checkpoint_cost = 0;          ///< seconds of the last checkpoint of this start, on rank 0; 0: none yet
  bool checkpoints_are_rare = false;   ///< the log has said so
  std::int64_t steps_here = 0;         ///< steps of this start
  unsigned flags_seen = 0;             ///< StepFlags of any rank since run() last read them
  std::optional<unsigned> last_flags;  ///< of the last step with a known outcome since the last checkpoint began
  std::string stopped_by;              ///< set on the rank that requested the stop
};

}  // namespace lockstep
