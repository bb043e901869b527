#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/comm/world.hpp"
#include "lockstep/data/data_memory.hpp"
#include "lockstep/train/profiler.hpp"
#include "lockstep/train/run_config.hpp"
#include "lockstep/train/task.hpp"

namespace lockstep {

class ProofChain;
class RunLog;

enum class Outcome : std::uint8_t { finished, interrupted };

/// The result of a replay.
struct Replayed {
  std::int64_t from = 0, until = 0;  ///< the steps that were computed
  std::int64_t agreed = -1;          ///< step of the last link that agrees; -1: none
  std::int64_t links = 0;            ///< number of links that agree
  std::string difference;            ///< between the state after step `until` and its link; "": none
};

/// The training loop: steps, evaluation, schedule, stopping rules, checkpoints, signals. Every rank runs it and decides
/// from numbers that are the same on all ranks.
class Trainer {
 public:
  /// errors  Error (usage): a batch larger than the training split; a schedule that does not fit the run; an
  ///         unknown metric in eval.best
  Trainer(World& world, const RunConfig& config, Task& model);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  std::int64_t steps_per_epoch() const;
  /// The metric of the validation samples that selects the best weights.
  std::string decides() const;
  /// Steps of the whole run if no stopping rule ends it.
  std::int64_t last_step() const;
  /// The lines of the banner in order: ranks, device, batch, learning rate, parameters, data, steps; and a note if test
  /// samples serve as validation samples. Collective.
  std::vector<std::pair<std::string, std::string>> facts();

  /// Continues from a checkpoint, which rank 0 reads and broadcasts. Collective.
  /// errors  Error (data): damaged, or of another architecture or data set; names the expected and the found value
  void resume(const std::filesystem::path& checkpoint);
  /// Starts at step 0 with the weights of another run's checkpoint; uses its averaged weights if it has them.
  /// Collective.
  /// errors  Error (data): names all arrays that are missing, extra or of another shape
  void start_from(const std::filesystem::path& checkpoint);
  /// Makes run() record these steps, with the evaluations and checkpoints between them, and write their timeline into
  /// the run directory. Call it after resume(): only steps that this start computes are recorded. Collective.
  /// errors  Error (usage): the run ends before the last of these steps
  void profile(StepRange steps);
  /// Trains until the configured end, a stopping rule, a signal (SIGTERM, SIGUSR1, SIGINT) or run.max_hours.
  /// Checkpoints go to `run_dir`/checkpoints. Collective.
  ///
  /// log  must outlive the Trainer, because its checkpoint writer may still use it
  Outcome run(RunLog& log, const std::filesystem::path& run_dir);
  /// Computes the steps up to `until` and compares the state with the links of a chain; stops at the first difference.
  /// Writes nothing. A signal ends it early. Collective; the result is the same on all ranks.
  Replayed replay(const ProofChain& chain, std::int64_t until);

  const TrainState& state() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Which instruction set is the best one: the last of ops::available_isas(), the same in every start, or the one that
/// is fastest for all ranks. It is measured once per process, unless there is no choice; rank 0 logs the rates.
enum class BestIsa : std::uint8_t { last, fastest };

/// Sets the instruction set of the CPU kernels, the same one on all ranks: kernels of different sets round differently.
/// Logs which rank decides if the processors differ. Collective.
///
/// wanted   the name of a set; auto: `before` if all processors have it, else the best one that all have
/// before   the set of the run's first start, or ""; warns of a change; if it is missing, the last set is the best one
/// errors   Error (usage): a processor lacks `wanted` or has another architecture; names its host and its best set
void choose_isa(World& world, const std::string& wanted, const std::string& before = {}, BestIsa best = BestIsa::last);

/// Prepares the processor of this rank: calls choose_isa() with run.isa, and sets the number of threads for OpenMP,
/// which it returns: run.threads; if 0, OMP_NUM_THREADS; otherwise the cores that the rank may use divided by the ranks
/// with the same cores; always at most OMP_THREAD_LIMIT. Warns if threads share cores. Collective.
///
/// best   of CPUs without run.reproducible; otherwise `last`
int prepare_cpu(World& world, const RunConfig& config, BestIsa best = BestIsa::last);

/// The device of this rank. "cpu"; or "cuda": the rank's number on its host selects a GPU of `gpu_ids`, or of all
/// visible ones.
/// errors  Error (usage): no such GPU, a build without CUDA or without code for the GPU
Device choose_device(World& world, const std::string& kind, const std::vector<std::string>& gpu_ids = {});
/// Warns once per host if its ranks share GPUs. Collective.
void warn_of_shared_gpus(World& world, Device device);

/// Runs `body` once per rank of this process. That is one rank, unless one process drives several GPUs (dist.parallel =
/// dp): then each GPU has a thread that is a rank. Returns the largest exit code.
/// errors  Error (usage): dp with several processes; a GPU that does not exist or is named twice
int on_each_gpu(World& world, const RunConfig& config, const std::function<int(World&)>& body);

/// Memory for data sets: one copy per node, shared by its ranks; rows as these options say.
std::unique_ptr<DataMemory> make_node_data_memory(World& world, const RowOptions& options = {});

/// The metric of the validation samples that config.eval.best names, or else the first one. The value has no meaning.
/// errors  Error (usage): there is none of this name
Metric deciding_metric(const RunConfig& config, Task& model);

/// Moves a task to this rank's device and sets its precision. errors  Error (usage): no such device; a precision that
/// the task does not offer
void place_task(World& world, const RunConfig& config, Task& model);

/// Builds the task of the configuration and loads its data, once per node. Collective.
///
/// data_memory   owns the arrays; it must outlive the task
/// checkpoint  if not null, the source of normalisation, names and sizes instead of the data set
/// weights     where the weights come from
/// errors      on all ranks if one of them fails, with one message
std::unique_ptr<Task> load_task(World& world, const RunConfig& config, DataMemory& data_memory,
                                const H5File* checkpoint = nullptr, WeightSource weights = WeightSource::initial);

/// Checks that all ranks run the same program file. Collective. errors  Error (usage): names the rank that differs
void require_same_program(World& world);

}  // namespace lockstep
