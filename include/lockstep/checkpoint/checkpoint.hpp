#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/checkpoint/train_state.hpp"
#include "lockstep/comm/world.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/optim/optimizer.hpp"

namespace lockstep {

/// A network with its data set, as its checkpoints see it.
class CheckpointedModel {
 public:
  virtual ~CheckpointedModel() = default;
  /// The value of model.kind.
  virtual const char* kind() const = 0;
  /// Writes everything except the weights that is needed to use the network without the training data: normalisation,
  /// names, architecture. Another thread calls it during training, so it must read only data that training never
  /// changes.
  virtual void save(H5File& file) const = 0;
  /// Hash of the data set's contents. Equal on all ranks, and in a run and its continuation.
  virtual std::uint64_t data_hash() const = 0;
  /// Whether weights refer to the data set's indices of users, items or puzzles, so that they are meaningless on
  /// another data set.
  virtual bool tied_to_data() const { return false; }
};

/// An optimizer of a run. Its state is stored in /optim/<name>, or in /optim itself if it is the only one and has no
/// name.
struct NamedOptimizer {
  std::string name;
  Optimizer* optimizer = nullptr;
};

/// The contents of a checkpoint. Null members are omitted.
struct CheckpointParts {
  const CheckpointedModel* model = nullptr;
  const ParamStore* params = nullptr;
  std::vector<NamedOptimizer> optimizers;
  std::vector<NamedTensor> vectors;  ///< other state of the training program
  const Ema* ema = nullptr;
  const TrainState* state = nullptr;
  std::string config;  ///< resolved INI text
  std::uint64_t seed = 0, data_hash = 0;
  int ranks = 1, threads = 1;
  std::int64_t devices = 1;  ///< RunConfig::scale()
};

/// Writes a checkpoint atomically (io/atomic_file). The file is flushed to the disk, read back and compared with the
/// checksums of the values in memory before it gets its name.
///
/// HDF5: /model/<parameter> (master weights; attributes `trainable`), /optim/[<optimizer>/]<slot>/<parameter>,
/// /program/<vector>, /ema/<parameter>, /state, /state/history/names and /state/history/values (a row per series),
/// /config (the resolved INI text), and what CheckpointedModel::save adds. Every dataset has an attribute `xxh3`, the
/// checksum of its values; the `xxh3` of the root covers all names, types, shapes and attributes. An end mark of 64
/// bytes follows the HDF5 data: length and checksum of all bytes before it, so that any changed or missing byte is
/// detected before HDF5 opens the file. HDF5 itself ignores the mark.
void save_checkpoint(const std::filesystem::path& path, const CheckpointParts& parts);

/// Merges a manifest and its parts into one file.
/// force   see require_replaceable()
/// errors  Error: usage if it is not a manifest, `into` is one of its files, or it would replace another file; data if
///         the checkpoint is not whole
void merge_checkpoint(const std::filesystem::path& manifest, const std::filesystem::path& into, bool force);

/// Why a file is not a whole checkpoint, or "" if it is. Checks the end mark, length and checksum of the file, then the
/// checksums of all datasets and of the structure. A file that this process has written or verified is not read again
/// until its size, time, inode or end mark changes. Never throws for a damaged file.
std::string checkpoint_defect(const std::filesystem::path& path);

class ShardedArrays;

/// A verified checkpoint, open for reading. The arrays of a manifest are read from its parts.
///
/// errors  Error: usage if the file is missing; data if it is damaged or not a checkpoint
class CheckpointReader {
 public:
  /// verified  another process has verified the file; this one reads only what it needs
  explicit CheckpointReader(const std::filesystem::path& path, bool verified = false);
  const std::filesystem::path& path() const { return path_; }
  /// The file itself. It lacks the arrays of a sharded checkpoint, which only the functions below read.
  const H5File& file() const { return file_; }
  std::uintmax_t size_bytes() const;  ///< on disk, with the parts
  /// Absolute paths of all arrays below a group, sorted; empty if there is no such group.
  std::vector<std::string> arrays(const std::string& group) const;
  bool has(const std::string& array) const;
  H5Info info(const std::string& array) const;
  /// Reads a whole array. errors  Error (data)
  template <class T>
  void read_into(const std::string& array, std::span<T> out) const;
  std::string config() const;  ///< resolved INI text
  std::string model_kind() const;
  std::uint64_t seed() const;
  std::string data_hash() const;  ///< hexadecimal
  /// errors  Error (data): the model is tied_to_data() and its data set `path` is not the one that it was trained on
  void require_data_of(const CheckpointedModel& model, const std::string& path) const;
  std::int64_t devices() const;  ///< RunConfig::devices() of the run's first start
  std::string isa() const;       ///< ops::record_name() of the instruction set that computed it; "" in older files
  TrainState state() const;
  bool has_ema() const;
  bool has_optimizer() const;  ///< whether a run can continue from it

  /// errors  Error (data): a missing, extra or differently shaped parameter, with its name and both shapes
  void load_weights(ParamStore& params) const;
  /// Loads the averaged weights if the checkpoint has them, else the weights.
  void load_average_or_weights(ParamStore& params) const;
  /// errors  Error (data): lists all arrays that are missing, extra or of another shape
  void require_arrays_of(const ParamStore& params) const;
  void load_optimizer(const NamedOptimizer& optimizer) const;
  void load_vectors(const std::vector<NamedTensor>& vectors) const;
  void load_ema(Ema& ema) const;

 private:
  void load(const std::string& dataset, const Tensor& into) const;
  void load_params(const std::string& group, ParamStore& params) const;
  std::filesystem::path path_;
  H5File file_;
  std::shared_ptr<const ShardedArrays> sharded_;  ///< null: the file holds its arrays
};

/// Protects a checkpoint from prune() by a file `<name>.keep` beside it, or ends the protection.
/// errors  Error (usage): no such file; (internal)
void set_protected(const std::filesystem::path& checkpoint, bool protect);
bool is_protected(const std::filesystem::path& checkpoint);

/// The checkpoints of a run directory: `checkpoints/step-N.h5`, `best.h5`, `final.h5`.
class CheckpointFolder {
 public:
  explicit CheckpointFolder(const std::filesystem::path& run_dir) : folder_(run_dir / "checkpoints") {}
  const std::filesystem::path& path() const { return folder_; }
  std::filesystem::path step_file(std::int64_t step) const;
  /// "rescue-N.h5": the same, of a run that has lost a rank.
  std::filesystem::path rescue_file(std::int64_t step) const;
  /// "best.h5" for place 1, "best-2.h5" for the second best evaluation, and so on.
  std::filesystem::path best_file(std::int64_t place = 1) const;
  /// Moves the best files from `place` on down one place, to free `place` for the weights of this step. Drops the file
  /// of the same step, or else the file at place `keep`.
  void make_room_for_best(std::int64_t place, std::int64_t keep, std::int64_t step) const;
  /// Call it before a best file changes: if none has changed since the last checkpoint, links them in the folder
  /// `previous-best`, because a run that continues from that checkpoint needs them.
  void set_best_aside() const;
  /// Undoes the changes of the best files since the last checkpoint if a run continues from it, at this step.
  void restore_best(std::int64_t step) const;
  std::filesystem::path final_file() const { return folder_ / "final.h5"; }
  /// `step-N.h5`, `rescue-N.h5` and `final.h5` by descending step, whole or damaged.
  std::vector<std::filesystem::path> candidates() const;
  /// Moves the checkpoints of later steps, with their parts, to `previous-N/checkpoints` of the run directory.
  /// Otherwise a run that continues from an earlier checkpoint would later resume from one of them, because their steps
  /// are higher. Returns the new folder, or "" if there are none. errors  Error (internal) if a file cannot be moved
  std::filesystem::path set_aside_after(std::int64_t step) const;
  /// Call it after a checkpoint: removes all `step-N.h5` and `rescue-N.h5` except the last `keep` whole ones and the
  /// protected ones, and the best files of earlier checkpoints.
  void prune(std::int64_t keep) const;

  struct Rejected {
    std::filesystem::path path;
    std::string reason;
  };
  /// The whole checkpoint of the highest step ("" if there is none), and the later ones that were refused.
  std::filesystem::path newest_whole(std::vector<Rejected>& rejected) const;

 private:
  std::filesystem::path previous_best(std::int64_t place = 1) const;
  std::filesystem::path folder_;
};

}  // namespace lockstep
