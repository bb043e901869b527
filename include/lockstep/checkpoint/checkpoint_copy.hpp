#pragma once
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/checkpoint/checkpoint_parts.hpp"
#include "lockstep/io/h5.hpp"

namespace lockstep {

/// The arrays of a checkpoint under their paths, in the order of its file.
std::vector<NamedTensor> arrays_of(const CheckpointParts& parts);

/// A copy of the contents of a checkpoint in host memory. A thread writes it while training continues.
class CheckpointCopy {
 public:
  /// Copies with all threads. Reuses the memory of the previous copy.
  ///
  /// part, parts  copies only this share of the elements: the share of a rank in a sharded checkpoint
  /// in_place     copies no array in host memory: these arrays must not change until they are written
  void take(const CheckpointParts& from, int part = 0, int parts = 1, bool in_place = false);
  /// The step, if the copy is whole, separate and has a training state; else -1.
  std::int64_t whole_step() const { return parts_ == 1 && state_ && !in_place_ ? state_->step : -1; }
  /// Writes a whole copy. errors  Error (internal)
  void write(const std::filesystem::path& path) const;
  /// Writes a share. Returns the end mark of the file. errors  Error (internal)
  std::string write_part(const std::filesystem::path& path) const;
  /// Writes everything except the arrays, plus the list of the parts. errors  Error (internal)
  void write_manifest(const std::filesystem::path& path, const std::string& number,
                      const std::vector<std::string>& end_marks) const;

 private:
  void write_file(const std::filesystem::path& path, const std::function<void(H5File&)>& write_arrays) const;

  struct NamedSteps {
    std::string group, name;
    std::int64_t steps;
  };
  const CheckpointedModel* model_ = nullptr;
  int parts_ = 0;
  bool in_place_ = false;
  std::string config_;
  std::vector<std::pair<std::string, H5Value>> attributes_;
  std::vector<std::pair<std::string, bool>> trainable_;
  std::vector<NamedSteps> optimizers_;
  std::optional<double> ema_decay_;
  std::optional<TrainState> state_;
  std::vector<StoredArray> arrays_;
  std::unique_ptr<std::byte[]> memory_;
  std::size_t memory_bytes_ = 0;
};

/// A number that is new on this host, for the names of a checkpoint's parts, so that good parts are never overwritten.
std::string fresh_number();
/// Ends a checkpoint in parts, for large models. Every rank has written its share of all elements to a file
/// `<name>.<number>.part-R-of-K`; rank 0 writes the manifest, which has everything except the arrays and lists the
/// parts. All parts are verified before the manifest gets its name, so the checkpoint is whole or absent. Removes the
/// parts if one is missing. Collective.
///
/// mark_of_part  the end mark of this rank's part; throws if it was not written
/// errors        CollectiveError
void finish_sharded_checkpoint(World& world, const std::filesystem::path& path, const std::string& number,
                               const std::function<std::string()>& mark_of_part, const CheckpointCopy& copy);

}  // namespace lockstep
