#include "checkpoint/checkpoint_format.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/io/seal.hpp"

namespace lockstep {

namespace {

constexpr const char *kHistory = "/state/history", *kNames = "/state/history/names", *kValues = "/state/history/values",
                     *kProducts = "/state/products";

/// The series of a dataset of an older file.
std::string series_name(const std::string& link) {
  std::string series;
  for (std::size_t i = 0; i < link.size(); ++i) {
    const std::string code = link.substr(i, 3);
    const char c = code == "%2F" ? '/' : code == "%25" ? '%' : code == "%2E" ? '.' : '\0';
    series += c != '\0' ? c : link[i];
    if (c != '\0') i += 2;
  }
  return series;
}

}  // namespace

void write_state(H5File& file, const TrainState& state) {
  file.create_group(kHistory);
  TrainState::visit(state, [&]<class T>(const char* name, const T& field) {
    if constexpr (std::is_same_v<T, bool>) {
      file.set_attribute("/state", name, static_cast<std::int64_t>(field));
    } else {
      file.set_attribute("/state", name, H5Value(field));
    }
  });
  if (!state.products.empty()) file.write_text(kProducts, state.products);
  if (state.history.all().empty()) return;
  std::vector<std::string> names;
  std::vector<double> values;
  for (const auto& [name, series] : state.history.all()) {
    names.push_back(name);
    values.insert(values.end(), series.begin(), series.end());
  }
  file.write_text(kNames, names);
  file.write<double>(kValues, values, {static_cast<std::int64_t>(names.size()), state.history.size()});
}

TrainState read_state(const H5File& file) {
  TrainState state;
  TrainState::visit(state, [&]<class T>(const char* name, T& field) {
    if (TrainState::is_recent(name) && !file.has_attribute("/state", name)) return;
    if constexpr (std::is_same_v<T, std::string>) {
      field = file.text_attribute("/state", name);
    } else if constexpr (std::is_same_v<T, double>) {
      field = file.real_attribute("/state", name);
    } else {
      field = static_cast<T>(file.int_attribute("/state", name));
    }
  });
  if (file.has(kProducts)) state.products = file.read_text(kProducts);
  std::map<std::string, std::vector<double>> series;
  if (file.has(kNames)) {
    const std::vector<std::string> names = file.read_text(kNames);
    const std::vector<double> values = file.read<double>(kValues);
    const std::size_t records = values.size() / std::max<std::size_t>(1, names.size());
    require_data(names.size() * records == values.size(), "history: ", values.size(), " values of ", names.size(),
                 " series");
    for (auto first = values.begin(); const std::string& name : names) {
      series[name].assign(first, first + records);
      first += static_cast<std::ptrdiff_t>(records);
    }
  } else {
    // Older files have a dataset for each series, or a group for each '/' in a name.
    for (const std::string& dataset : file.datasets_under(kHistory))
      series[series_name(dataset.substr(std::string_view(kHistory).size() + 1))] = file.read<double>(dataset);
  }
  state.history.restore(std::move(series));
  return state;
}

std::string checkpoint_contents_defect(const std::filesystem::path& path) {
  try {
    const H5File file = H5File::open(path);
    if (!file.has_attribute("/", "format") || file.text_attribute("/", "format") != kCheckpointFormat)
      return "it is not a checkpoint of lockstep";
    const std::int64_t version = file.int_attribute("/", "version");
    if (version != kCheckpointVersion)
      return join("its format version is ", version, ", this program reads ", kCheckpointVersion);
    if (std::string defect = contents_defect(file); !defect.empty()) return defect;
    if (file.has("/state")) (void)read_state(file);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace lockstep
