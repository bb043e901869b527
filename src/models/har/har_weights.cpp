#include "lockstep/models/har/har_weights.hpp"

#include <cstring>
#include <functional>
#include <map>

#include "lockstep/base/error.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/io/h5.hpp"
#include "models/emulator/files/files.hpp"

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

Weights weights_of(const files::Tensors& tensors, const std::filesystem::path& path) {
  Weights weights;
  for (const auto& [name, tensor] : tensors) {
    require_data(tensor.shape.size() <= Shape::kMaxRank, "reading encoder weights '", path.string(), "': '", name,
                 "' has ", tensor.shape.size(), " axes");
    weights[bare(name)] = {Shape(tensor.shape), [&tensor](std::span<double> to) {
                             visit_float(tensor.dtype, [&]<class T>() {
                               const auto* from = static_cast<const std::byte*>(tensor.data);
                               for (double& value : to) {
                                 T element;
                                 std::memcpy(&element, from, sizeof element);
                                 value = static_cast<double>(element);
                                 from += sizeof element;
                               }
                             });
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
  const std::string bytes = path.extension() == ".h5" ? "" : Options::read_file(path.string());
  if (files::is_safetensors(bytes)) {
    const files::Tensors tensors = files::safetensors_tensors(bytes, path.string());
    take(network, weights_of(tensors, path), path);
    return;
  }
  const H5File file = H5File::open(path);
  take(network, weights_of(file), path);
}

}  // namespace lockstep
