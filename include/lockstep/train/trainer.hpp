#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/world.hpp"
#include "lockstep/models/model.hpp"
#include "lockstep/train/checkpoint.hpp"
#include "lockstep/train/run_config.hpp"

namespace lockstep {

class Placement;
class RunLog;

/// Exit code of a run that stopped cleanly before its end, after a checkpoint: start it again to continue.
inline constexpr int kExitInterrupted = 85;

enum class Outcome : std::uint8_t { finished, interrupted };

/// The training loop of every model, on every rank: steps, evaluation, schedule, stopping rules, checkpoints, signals.
///
/// Every decision is taken from numbers that are the same on all ranks.
class Trainer {
 public:
  /// errors  Error (usage): a batch larger than the training split, a schedule that does not fit the run
  Trainer(World& world, const RunConfig& config, Model& model);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  std::int64_t steps_per_epoch() const;
  /// Steps of the whole run, should no stopping rule end it earlier.
  std::int64_t last_step() const;
  /// Ranks, hosts, threads, batch, learning rate, parameters, data: the banner's lines, in order. Collective.
  std::vector<std::pair<std::string, std::string>> facts();

  /// Continues from a checkpoint, which rank 0 reads and gives to all. Collective.
  /// errors  Error (data): damaged, or of another architecture or data set, with expected and found
  void resume(const std::filesystem::path& checkpoint);
  /// Trains until the configured end, a stopping rule, a signal (SIGTERM, SIGUSR1) or run.max_hours; checkpoints go to
  /// `run_dir`/checkpoints. Collective.
  Outcome run(RunLog& log, const std::filesystem::path& run_dir);

  const TrainState& state() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Threads of this rank: what is asked for, or OMP_NUM_THREADS, or the cores that it may run on shared among the ranks
/// that may run on the same ones. Sets them for OpenMP. Collective over the node.
int choose_threads(World& world, std::int64_t asked);

/// Where this rank computes: the processor ("cpu"), or the GPU ("cuda") that its rank on the host picks of those in
/// `gpu_ids`, by number, or of all that the process sees. errors  Error (usage): no such GPU, or a build without CUDA
Device choose_device(World& world, const std::string& kind, const std::vector<std::string>& gpu_ids = {});

/// Runs `body`, a command from the loading of its data on, as every rank of the run: as this process's own, or, where one
/// process drives several GPUs (dist.parallel = dp), as a rank on a thread for each of them. Returns the largest exit code.
/// errors  Error (usage): dp with several processes, a GPU that is not there or is named twice
int on_each_gpu(World& world, const RunConfig& config, const std::function<int(World&)>& body);

/// Memory for data sets with one copy per node, which its ranks share.
std::unique_ptr<Placement> make_node_placement(World& world);

/// Takes a model to this rank's device, to be read in the run's precision. errors  Error (usage): no such device, a model
/// without this precision
void place_model(World& world, const RunConfig& config, Model& model);

/// Builds the model that the configuration names and loads its data, once per node. A failure on any rank is one
/// message and leaves all. Collective. `placement` owns the arrays and must outlive the model.
/// With a checkpoint the normalisation is the checkpoint's instead of the data set's own.
std::unique_ptr<Model> load_model(World& world, const RunConfig& config, Placement& placement,
                                  const H5File* checkpoint = nullptr);

/// All ranks must run the same program file. errors  Error (usage) naming the rank that differs. Collective.
void require_same_program(World& world);

}  // namespace lockstep
