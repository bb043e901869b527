#pragma once
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/models/weights.hpp"
#include "lockstep/train/task_config.hpp"

namespace lockstep {

/// Values of options, such as {"model.hidden_units", "50"}.
using OptionValues = std::vector<std::pair<std::string, std::string>>;

/// An option that changes what a network computes and that no array determines: lockstep import asks for it.
struct AskedOption {
  const char* key;
  const char* upstream;  ///< its value in the public code
  /// Asked only where another option has one of these values, separated by |; null: always.
  const char* where = nullptr;
  const char* is = nullptr;
};

/// How the weights of a kind are exported and imported. Arrays have our names.
struct WeightExchange {
  NameRules names = {};
  /// The options that follow from the arrays, given those that a user has set. Null: none.
  OptionValues (*options)(const NamedArrays& arrays, const Options& set) = nullptr;
  /// All other options of the network. Options that serve training alone are in neither list.
  std::span<const AskedOption> asked = {};
  const char* upstream = "";  ///< names the public code whose values `asked` has
  /// What the data set gives the network, such as "names of classes".
  std::string (*from_data)(const NamedArrays& arrays) = nullptr;
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

template <auto f, class R, class Own, class... Rest>
constexpr auto with_base(R (*)(Own&, Rest...)) {
  using Base = std::conditional_t<std::is_const_v<Own>, const TaskConfig, Task>;
  return +[](Base& object, Rest... rest) -> R { return f(own<Own>(object), std::forward<Rest>(rest)...); };
}
/// A function of a kind's own configuration (const) or task, as WeightExchange has it.
template <auto f>
inline constexpr auto of_base = with_base<f>(f);

/// Adds the value of an option, unless it is 0.
void add_size(OptionValues& values, const std::string& key, std::int64_t value);
/// The number of arrays whose name is this pattern, with `#` for 0, 1, 2, ...
std::int64_t count_arrays(const NamedArrays& arrays, const std::string& pattern);
/// The extent of an axis of an array, counted from the end if negative; 0 if there is no such array or axis.
std::int64_t extent(const NamedArrays& arrays, const std::string& name, int axis);

}  // namespace lockstep
