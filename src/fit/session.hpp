#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fit/columns.hpp"
#include "fit/reservoir.hpp"
#include "lockstep/comm/world.hpp"
#include "lockstep/formats/emulator_files.hpp"
#include "lockstep/ops/state_view.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/tasks/emulator/emulator_task.hpp"
#include "lockstep/train/run_config.hpp"
#include "lockstep/train/sharded_program.hpp"

namespace lockstep::fit {

/// An emulator of which each step has its own training samples.
class ObservedTask final : public EmulatorTask {
 public:
  using EmulatorTask::EmulatorTask;
  /// Sets the samples of a step of which `first` and those after it are here. The columns must outlive the step.
  void observe(std::int64_t first, const Columns& columns);
  const DrawnShard& draw(Arena& host, const Shard& shard) const override;

 private:
  std::int64_t first_ = 0;
  std::vector<std::int32_t> numbers_;  ///< 0, 1, ...
  /// RowDraw's, of all samples, or null.
  const float *gpu_x_ = nullptr, *gpu_y_ = nullptr, *gpu_weights_ = nullptr;
};

/// The training program of an ObservedTask: a step takes all samples of its batch at once.
class ObservedProgram final : public ShardedProgram {
 public:
  ObservedProgram(World& world, const RunConfig& config, ObservedTask& task, int threads);
  /// Sets the number of samples of the next step, over all ranks.
  void expect(std::int64_t samples) { samples_ = samples; }
  /// The samples of such a step that a rank computes.
  Shard part(std::int64_t samples, int rank);

 protected:
  GlobalBatch batch_at(const TrainState& state) override;

 private:
  std::int64_t samples_ = 0;
};

/// A network in training within another program: the state of lsfit_session, see lockstep_train.h.
class Session {
 public:
  /// communicator  points to an MPI_Comm
  /// names, units  separated by commas, inputs first; "": none
  /// errors        Error (usage): options; a number of names that does not fit; ranks that differ. Collective.
  Session(const void* communicator, const std::string& config, std::int64_t n_in, std::int64_t n_out,
          const std::string& names, const std::string& units);

  /// errors  Error (usage): after the first step; see check_moments()
  void set_moments(Moments moments);
  /// Adds columns to the next step, without those of weight 0. weights, ids: empty, or one per column, in host memory
  /// gpu     if x and y are on a GPU, the stream after whose work they are complete; only if takes_from(its GPU)
  /// errors  Error (data): a value that is not finite or a negative weight; the next step then fails on all ranks
  ///         Error (usage): identities for some columns of the step only, or none with a reservoir
  template <class S>
  void observe(std::int64_t n, StateView<const S> x, StateView<const S> y, std::span<const S> weights,
               std::span<const long> ids, const Stream* gpu = nullptr);
  /// Whether the next columns may stay on this GPU.
  bool takes_from(Device gpu) const {
    return gpu == device_ && reservoir_.capacity() == 0 && (observed_.on_gpu || observed_.count() == 0);
  }
  /// Trains on the columns of all ranks and drops them. Returns the weighted mean loss before the update. Collective.
  double step();
  Device device() const { return device_; }
  std::int64_t steps() const { return state_.step; }
  std::int64_t n_in() const { return n_in_; }
  std::int64_t n_out() const { return n_out_; }

  /// The network with the weights that predictions use. errors  Error (usage): before the first step or state
  TrainedEmulator network();
  void export_to(const std::string& path);           ///< Collective.
  void save(const std::string& path);                ///< Collective.
  std::vector<std::byte> state();                    ///< Collective with a reservoir.
  void set_state(std::span<const std::byte> bytes);  ///< Collective.
  /// "rank 3 of 8 (node04), step 12"
  std::string where() const;

 private:
  void read_options(const std::string& config);
  /// The samples of a step that a rank takes.
  using Parts = std::function<Shard(std::int64_t samples, int rank)>;
  /// Makes a batch of the observed columns and some of the reservoir, of which columns_ is this rank's part. Collective.
  void share_columns(const Parts& part);
  /// The moments of the observed columns; the same bits however these are divided over ranks. Collective.
  Moments moments_of_columns();
  /// The network in training. The session has it only once all ranks have built theirs.
  struct Learner {
    ObservedTask task;
    std::optional<ObservedProgram> program;
    std::optional<Ema> ema;
    Ema* average() { return ema ? &*ema : nullptr; }
  };
  std::unique_ptr<Learner> build(Moments moments);  ///< Collective.
  void require_built() const;
  std::string variables_text() const;
  CheckpointParts parts(Learner& learner);

  RunConfig config_;
  World world_;
  Device device_;       ///< that computes
  Buffer gpu_scratch_;  ///< of ops::copy_columns()
  Options options_;
  std::int64_t n_in_, n_out_;
  EmulatorVariables variables_;
  std::optional<Moments> moments_;  ///< until the network is built
  std::int64_t reservoir_columns_ = 0, reservoir_batch_ = 0;
  Columns observed_, columns_;     ///< of this rank for the next step, and its part of the current one
  std::vector<Shard> parts_;       ///< the part of each rank
  std::vector<std::int64_t> ids_;  ///< of the columns that all ranks have observed for it; empty: they have none
  std::int64_t samples_ = 0;       ///< of the step on all ranks
  std::string refused_;            ///< why columns of this rank were refused; "": none were
  Reservoir reservoir_;
  std::unique_ptr<Learner> learner_;
  std::optional<LrSchedule> schedule_;
  TrainState state_;
};

}  // namespace lockstep::fit
