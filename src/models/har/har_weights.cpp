#include "lockstep/models/har/har_weights.hpp"

#include <algorithm>
#include <functional>
#include <map>

#include "lockstep/base/error.hpp"
#include "lockstep/io/file_kind.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/io/weights.hpp"

namespace lockstep {

namespace {

constexpr std::string_view kPrefix = "encoder.";

std::string bare(const std::string& name) { return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name; }

/// A weight in a file.
struct Stored {
  Shape shape;
  std::function<void(std::span<double>)> read;
};
using Weights = std::map<std::string, Stored>;  // by name without prefix

Weights weights_of(const H5File& file) {
  Weights weights;
  for (const std::string& dataset : file.datasets_under("/")) {
    const std::vector<std::int64_t> shape = file.info(dataset).shape;
    require_data(shape.size() <= Shape::kMaxRank, "reading encoder weights '", file.path().string(), "': '", dataset,
                 "' has ", shape.size(), " axes");
    weights[bare(dataset.substr(1))] = {
        Shape(shape), [&file, dataset](std::span<double> to) { file.read_into<double>(dataset, to); }};
  }
  return weights;
}

Weights weights_of(const NamedArrays& arrays, const std::filesystem::path& path) {
  Weights weights;
  for (const NamedArray& array : arrays.arrays) {
    require_data(array.shape.size() <= Shape::kMaxRank, "reading encoder weights '", path.string(), "': '", array.name,
                 "' has ", array.shape.size(), " axes");
    weights[bare(array.name)] = {Shape(array.shape), [&array](std::span<double> to) {
                                   std::visit([&](const auto& values) { std::ranges::copy(values, to.begin()); },
                                              array.values);
                                 }};
  }
  return weights;
}

void take(Har& network, Weights weights, const std::filesystem::path& path) {
  const std::string reading = join("reading encoder weights '", path.string(), "'");
  std::string missing;
  for (Param& p : network.params().all()) {
    if (!p.name.starts_with(kPrefix)) continue;
    const auto found = weights.find(bare(p.name));
    if (found == weights.end()) {
      missing += " " + bare(p.name);
      continue;
    }
    const Stored& stored = found->second;
    require_data(stored.shape == p.shape, reading, ": ", p.name, " is ", stored.shape, ", expected ", p.shape);
    std::vector<double> values(static_cast<std::size_t>(p.shape.size()));
    stored.read(values);
    const HostView host(p.value, HostView::Access::write);
    visit_float(p.value.dtype(), [&]<class T>() {
      T* to = host->data<T>();
      for (const double value : values) *to++ = static_cast<T>(value);
    });
    weights.erase(found);
  }
  std::string unknown;
  for (const auto& [name, stored] : weights) unknown += " " + name;
  require_data(missing.empty() && unknown.empty(), reading, ":", missing.empty() ? "" : " missing:", missing,
               unknown.empty() || missing.empty() ? "" : ";", unknown.empty() ? "" : " not of this network:", unknown);
}

}  // namespace

void load_encoder_weights(Har& network, const std::filesystem::path& path) {
  require_usage(std::filesystem::exists(path), "option model.encoder_weights: no file '", path.string(), "'");
  if (path.extension() != ".h5" && file_kind(path) != FileKind::hdf5) {
    const NamedArrays arrays = read_weights(path);
    take(network, weights_of(arrays, path), path);
    return;
  }
  const H5File file = H5File::open(path);
  take(network, weights_of(file), path);
}

}  // namespace lockstep
