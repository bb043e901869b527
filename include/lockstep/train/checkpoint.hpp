#pragma once
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "lockstep/io/h5.hpp"
#include "lockstep/models/model.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/optim/schedule.hpp"

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
  double best = std::numeric_limits<double>::infinity();  ///< best headline metric of the validation split so far,
                                                          ///< smaller is better
  std::int64_t best_epoch = -1;
  std::int64_t since_best = 0;  ///< evaluations without improvement
  double seconds = 0;           ///< of training, over all sessions of the run
  bool finished = false;        ///< the run had come to its end
  std::string stop_reason;      ///< why, "" while it has not
  LrSchedule::State schedule;
  History history;
};

/// Everything that a checkpoint is made of, gathered by the trainer. Null parts are left out.
struct CheckpointParts {
  const Model* model = nullptr;
  const ParamStore* params = nullptr;
  const Optimizer* optimizer = nullptr;
  const Ema* ema = nullptr;
  const TrainState* state = nullptr;
  std::string config;  ///< resolved INI text
  std::uint64_t seed = 0, data_hash = 0;
  int ranks = 1, threads = 1;
};

/// Writes a checkpoint: whole or not at all (io/atomic_file), read back and verified before it gets its name.
///
/// HDF5: /model/<parameter> (master weights; attributes `trainable`), /optim/<slot>/<parameter>, /ema/<parameter>,
/// /state, /state/history/<series>, /config (the resolved INI text), and what Model::save adds. Every dataset carries
/// `xxh3`, its values' checksum, and the root carries one over all names, types, shapes and attributes. Behind the end
/// of the HDF5 file stand 64 bytes with the length and checksum of all bytes before them, so that any flipped or
/// missing byte is noticed before HDF5 sees the file; HDF5 itself ignores them.
void save_checkpoint(const std::filesystem::path& path, const CheckpointParts& parts);

/// Why a file is not a whole checkpoint, or "" when it is: end mark, length and checksum of the file, then every
/// dataset's checksum and the structure's. Never throws for a damaged file.
std::string checkpoint_defect(const std::filesystem::path& path);

/// A checkpoint open for reading, verified as a whole. errors  Error: usage when missing, data when damaged or foreign
class CheckpointReader {
 public:
  explicit CheckpointReader(const std::filesystem::path& path);
  const std::filesystem::path& path() const { return path_; }
  const H5File& file() const { return file_; }
  std::string config() const;  ///< resolved INI text
  std::string model_kind() const;
  std::uint64_t seed() const;
  std::uint64_t data_hash() const;
  TrainState state() const;
  bool has_ema() const;

  /// errors  Error (data): a parameter that is missing, extra or of another shape, named with expected and found
  void load_weights(ParamStore& params) const;
  /// The weights to use the model with: the average when there is one, else as load_weights.
  void load_average_or_weights(ParamStore& params) const;
  void load_optimizer(Optimizer& optimizer) const;
  void load_ema(Ema& ema) const;

 private:
  std::filesystem::path path_;
  H5File file_;
};

/// The checkpoints of a run directory: `checkpoints/step-N.h5`, `best.h5`, `final.h5`.
class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::filesystem::path run_dir) : folder_(std::move(run_dir) / "checkpoints") {}
  const std::filesystem::path& path() const { return folder_; }
  std::filesystem::path step_file(std::int64_t step) const;
  std::filesystem::path best_file() const { return folder_ / "best.h5"; }
  std::filesystem::path final_file() const { return folder_ / "final.h5"; }
  /// `step-N.h5` and `final.h5`, the furthest first, whether whole or not.
  std::vector<std::filesystem::path> candidates() const;
  /// Removes all `step-N.h5` but the `keep` furthest whole ones.
  void prune(std::int64_t keep) const;

  struct Rejected {
    std::filesystem::path path;
    std::string reason;
  };
  /// The furthest whole checkpoint ("" when there is none) and the ones that were refused before it.
  std::filesystem::path newest_whole(std::vector<Rejected>& rejected) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace lockstep
