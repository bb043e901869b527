#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/comm/world.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/models/model.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/train/train_state.hpp"

namespace lockstep {

/// One of a run's optimizers: kept under /optim/<name>, or /optim itself when it is the only one and has no name.
struct NamedOptimizer {
  std::string name;
  Optimizer* optimizer = nullptr;
};

/// Everything that a checkpoint is made of, gathered by the trainer. Null parts are left out.
struct CheckpointParts {
  const Model* model = nullptr;
  const ParamStore* params = nullptr;
  std::vector<NamedOptimizer> optimizers;
  std::vector<NamedTensor> vectors;  ///< further state of the training program
  const Ema* ema = nullptr;
  const TrainState* state = nullptr;
  std::string config;  ///< resolved INI text
  std::uint64_t seed = 0, data_hash = 0;
  int ranks = 1, threads = 1;
};

/// Writes a checkpoint: whole or not at all (io/atomic_file), read back and verified before it gets its name.
///
/// HDF5: /model/<parameter> (master weights; attributes `trainable`), /optim/[<optimizer>/]<slot>/<parameter>, /program/<vector>,
/// /ema/<parameter>, /state, /state/history/<series>, /config (the resolved INI text), and what Model::save adds. Every dataset carries
/// `xxh3`, its values' checksum, and the root carries one over all names, types, shapes and attributes. Behind the end
/// of the HDF5 file stand 64 bytes with the length and checksum of all bytes before them, so that any flipped or
/// missing byte is noticed before HDF5 sees the file; HDF5 itself ignores them.
void save_checkpoint(const std::filesystem::path& path, const CheckpointParts& parts);

/// The same for large models: every rank writes its share of all elements to a file of its own,
/// `<name>.<number>.part-R-of-K`, and then rank 0 the manifest, which is all of the above but the arrays and tells what the
/// parts are. Parts are written and verified before the manifest gets its name, so a checkpoint is whole or absent, too. Collective.
/// errors  on all ranks when one of them cannot write its part
void save_sharded_checkpoint(World& world, const std::filesystem::path& path, const CheckpointParts& parts);
/// One file out of a manifest and its parts. errors  Error: usage when it is no manifest, data when it is not whole
void merge_checkpoint(const std::filesystem::path& manifest, const std::filesystem::path& into);

/// Why a file is not a whole checkpoint, or "" when it is: end mark, length and checksum of the file, then every
/// dataset's checksum and the structure's. Never throws for a damaged file.
std::string checkpoint_defect(const std::filesystem::path& path);

/// A checkpoint open for reading, verified as a whole; a manifest with its parts reads like a single file. errors  Error: usage when missing, data when damaged or foreign
class CheckpointReader {
 public:
  explicit CheckpointReader(const std::filesystem::path& path);
  const std::filesystem::path& path() const { return path_; }
  const H5File& file() const { return file_; }
  std::string config() const;  ///< resolved INI text
  std::string model_kind() const;
  std::uint64_t seed() const;
  std::string data_hash() const;  ///< hexadecimal
  TrainState state() const;
  bool has_ema() const;
  bool has_optimizer() const;  ///< whether a run can continue from it

  /// errors  Error (data): a parameter that is missing, extra or of another shape, named with expected and found
  void load_weights(ParamStore& params) const;
  /// The weights to use the model with: the average when there is one, else as load_weights.
  void load_average_or_weights(ParamStore& params) const;
  void load_optimizer(const NamedOptimizer& optimizer) const;
  void load_vectors(const std::vector<NamedTensor>& vectors) const;
  void load_ema(Ema& ema) const;

 private:
  void load(const std::string& dataset, const Tensor& into) const;
  void load_params(const std::string& group, ParamStore& params) const;
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
