#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/placement.hpp"
#include "lockstep/models/model.hpp"

namespace lockstep {

class Options;

/// What a model is built from besides its own options.
struct ModelSource {
  std::filesystem::path path;  ///< data.path: what lockstep-prep made
  std::uint64_t seed = 0;
  DType dtype = DType::f32;  ///< of weights and activations
  Placement& placement;      ///< of the data set's arrays; outlives the model
  /// The checkpoint that the weights will come from, when there is one: normalisation, names and sizes are taken from it
  /// instead of from the data set.
  const H5File* checkpoint = nullptr;
};

/// What a run of a model needs, told without building it.
struct ModelNeeds {
  std::int64_t train_samples = 0;
  std::int64_t parameters = 0;
  double data_bytes = 0;                   ///< the arrays of the data set, once per node
  double activation_bytes_per_sample = 0;  ///< of a training sample between its forward and backward pass
};

/// The options of one kind of model, and how to build it from them.
///
/// The keys are `model.*` and others that only this kind knows (`loss.*`, `augment.*`); common keys whose default is
/// another one in this model's paper get it by Options::set_default().
class ModelConfig {
 public:
  virtual ~ModelConfig() = default;
  /// Adds the keys to a table that holds the common ones already, bound to this object.
  virtual void add_options(Options& options) = 0;
  /// What no single key can check. errors  Error (usage)
  virtual void check() const {}
  /// Whether Model::diagnostics() has something to say: then `jacobian.*` and `stop.jacobian_*` are keys.
  virtual bool has_diagnostics() const { return false; }
  /// errors  usage: options that do not fit the data; data: a file of another format, damaged, or unlike the checkpoint
  virtual std::unique_ptr<Model> load(const ModelSource& source) const = 0;
  /// Reads no more than the header of the data set. errors  as load()
  virtual ModelNeeds needs(const std::filesystem::path& path, DType dtype) const = 0;
};

/// The values of model.kind.
std::vector<std::string> model_kinds();
/// errors  Error (usage): an unknown kind, with the nearest known one
std::unique_ptr<ModelConfig> make_model_config(const std::string& kind);

}  // namespace lockstep
