#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/models/weights.hpp"
#include "lockstep/train/task_config.hpp"

namespace lockstep {

/// Values of options, such as {"model.hidden_units", "50"}.
using OptionValues = std::vector<std::pair<std::string, std::string>>;

/// How the weights of a kind are exported and imported. Arrays have our names.
struct WeightExchange {
  NameRules names = {};
  /// The options that follow from the shapes of arrays. Null: none.
  OptionValues (*options)(const NamedArrays& arrays) = nullptr;
  /// Adds a description of a checkpoint's network to the metadata of a weight file, and the names in its data set
  /// unless `data` is null. Null: nothing.
  void (*describe)(const TaskConfig& config, const H5File& checkpoint, const H5File* data, const NamedArrays& arrays,
                   WeightMetadata& metadata) = nullptr;
  bool names_in_data = false;  ///< whether describe() takes names from the data set
  /// TaskConfig::load() for weights from another program; takes arrays that are no parameters. Null: as for training.
  std::unique_ptr<Task> (*load)(const TaskConfig& config, const TaskSource& source, NamedArrays& arrays) = nullptr;
  /// Computes the parameters without public name from the others. Null: there are none.
  void (*complete)(Task& task) = nullptr;
  /// Tables that the network computes from its data set, as a weight file of another kind with its public names and
  /// metadata. Null: the kind has none.
  NamedArrays (*tables)(Task& task) = nullptr;
  /// The bytes of an ONNX file with the network of a weight file, whose arrays have our names. Null: the kind has none.
  /// errors  usage, beginning with `what`: a form of the network that ONNX cannot hold
  std::string (*onnx)(const NamedArrays& file, const std::string& what) = nullptr;
};

/// Adds the value of an option, unless it is 0.
void add_size(OptionValues& values, const std::string& key, std::int64_t value);
/// The number of arrays whose name is this pattern, with `#` for 0, 1, 2, ...
std::int64_t count_arrays(const NamedArrays& arrays, const std::string& pattern);
/// The extent of an axis of an array, counted from the end if negative; 0 if there is no such array or axis.
std::int64_t extent(const NamedArrays& arrays, const std::string& name, int axis);

}  // namespace lockstep
