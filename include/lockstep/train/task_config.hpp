#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/data/data_memory.hpp"
#include "lockstep/train/task.hpp"

namespace lockstep {

class Options;
struct RunConfig;

/// Where the weights of a loaded task come from. initial: random, or from a file (model.pretrain,
/// model.encoder_weights). checkpoint: the caller loads them next, so load() reads no file of initial weights.
enum class WeightSource : std::uint8_t { initial, checkpoint };
/// The source for a run that continues from this file; "": a new run.
inline WeightSource weights_of(const std::filesystem::path& checkpoint) {
  return checkpoint.empty() ? WeightSource::initial : WeightSource::checkpoint;
}

/// The inputs of TaskConfig::load() other than the options.
struct TaskSource {
  std::filesystem::path path;  ///< data.path: a file of lockstep-prep
  std::uint64_t seed = 0;
  DType dtype = DType::f32;  ///< of weights and activations
  DataMemory& data_memory;   ///< owns the data set's arrays; outlives the task
  /// If not null, the source of normalisation, names and sizes instead of the data set.
  const H5File* checkpoint = nullptr;
  WeightSource weights = WeightSource::initial;
  std::filesystem::path pretrained = {};  ///< the best weights of TaskConfig::pretraining(); "": start without them
  bool reads_initial_weights() const { return checkpoint == nullptr && weights == WeightSource::initial; }
};

/// A run that precedes the task's own run and trains its initial weights, on the same data and ranks.
struct Pretraining {
  std::string kind;                                       ///< model.kind
  std::vector<std::pair<std::string, std::string>> keys;  ///< options that differ from this configuration
};

/// The step to plan.
struct PlannedStep {
  std::int64_t samples = 0;  ///< over all ranks, of all micro-batches
  std::int64_t scale = 1;    ///< RunConfig::over_devices() for one sample, of all micro-batches
  std::int64_t ranks = 1, shards = 16;
  bool reproducible = false;
  bool on_gpu = false;
};

/// The resources that a run needs, estimated without building the task.
struct TaskNeeds {
  std::int64_t train_samples = 0;               ///< samples of an epoch
  std::int64_t steps_per_epoch = 0;             ///< 0: as many as the samples fill, the last possibly incomplete
  std::int64_t parameters = 0;                  ///< all values of /model
  std::int64_t fixed_parameters = 0;            ///< of these, values without a gradient buffer and optimizer state
  double carried_bytes_per_sample = 0;          ///< state of a step's samples that persists, also in checkpoints
  double data_bytes = 0;                        ///< the arrays of the data set, once per node
  double row_bytes = 0;                         ///< of these, a sample's row, which may be divided over nodes; 0: none
  std::int64_t data_rows = 0;                   ///< the number of such rows, of all splits
  double activation_bytes_per_sample = 0;       ///< for the samples that a thread, or the GPU, computes at a time
  std::int64_t least_shard = 1;                 ///< ShardModel::least_shard()
  std::int64_t least_tree_shard = 0;            ///< ShardModel::least_tree_shard()
  std::int64_t samples_in_cache = 0;            ///< ShardModel::samples_in_cache()
  bool rows_vary = false;                       ///< ShardModel::count_rows(): a GPU adds rows to those of samples
  double scratch_bytes = 0;                     ///< further memory of a thread
  double rank_bytes = 0;                        ///< further memory of a rank for any batch, such as arrays of a graph
  double gpu_data_bytes = 0;                    ///< GPU memory of the data set
  std::optional<double> gradient_buffers;       ///< copies of the gradient; none: the copies of CpuStep and GpuStep
  std::int64_t parameters_with_two_states = 0;  ///< trained values for which two optimizers have a state
  double evaluation_bytes = 0;                  ///< memory of a thread in an evaluation
  std::int64_t owned_parameters = 0;  ///< trained values with an owner: no other rank stores their gradient and
                                      ///< optimizer state, and no thread has a separate gradient
  double gathered_bytes = 0;          ///< memory of a rank for results of the owners for all samples of a step
  bool state_divided = false;         ///< several ranks: TrainingProgram::settle_alone() returns false
  bool row_sparse = false;  ///< a special program stores gradients of rows separately and sums them in a second buffer
  std::int64_t table_rows = 0, table_columns = 0;  ///< a table: each thread or shard stores gradients only for the
                                                   ///< rows that it touches
  double touched_rows_per_sample = 0;              ///< upper bound, of that table
};

/// The options of one kind of model, and the task that they describe.
///
/// The keys are `model.*` and others of this kind (`loss.*`, `augment.*`). Options::set_default() changes the defaults
/// of common keys, for example to those of the model's paper.
class TaskConfig {
 public:
  virtual ~TaskConfig() = default;
  /// Adds the keys, bound to this object, to a table that already has the common ones.
  virtual void add_options(Options& options) = 0;
  /// Checks combinations of keys. errors  Error (usage)
  virtual void check() const {}
  /// The command that prepares published data for this kind, for messages.
  virtual const char* preparation() const { return "lockstep-prep SOURCE"; }
  /// The run.precision of the model's publication, for GPUs.
  virtual const char* published_precision() const { return "fp32"; }
  /// The run that trains the first weights; none: they are random, or come from a file.
  virtual std::optional<Pretraining> pretraining() const { return {}; }
  /// Whether Task::diagnostics() returns metrics; `jacobian.*` and `stop.jacobian_*` are keys then.
  virtual bool has_diagnostics() const { return false; }
  /// errors  Error (usage): the training program does not support the options of the run
  virtual void require_supported(const RunConfig&, int /*ranks*/) const {}
  /// errors  usage: options that do not fit the data; data: a file that is damaged, of another format or unlike the
  ///         checkpoint
  virtual std::unique_ptr<Task> load(const TaskSource& source) const = 0;
  /// Reads only the header of the data set. errors  as load()
  virtual TaskNeeds needs(const std::filesystem::path& path, DType dtype, const PlannedStep& step) const = 0;
};

/// The configuration or task of a kind as the kind's own type. errors  Error (internal): it is of another kind
template <class Own, class Base>
Own& own(Base& object) {
  auto* found = dynamic_cast<Own*>(&object);
  require(found != nullptr, "a function of one kind of model was called for another kind");
  return *found;
}

}  // namespace lockstep
