#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "files.hpp"
#include "lockstep/base/json.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/io/weights.hpp"

/// An emulator as safetensors. Weights keep their names (network.0.weight); normalisation is input_mean, input_std,
/// output_mean, output_std (F64); description, self-test and checksums are strings in __metadata__.
namespace lockstep::files {
namespace {

using Json = nlohmann::json;
constexpr const char* kSelfTest = "selftest";

}  // namespace

std::string safetensors_bytes(const Emulator& network, const EmulatorMetadata& metadata) {
  const EmulatorSelfTest selftest = make_selftest(network);
  NamedArrays content = {.arrays = moments_of(network.moments(), ""), .metadata = {}};
  std::ranges::move(weights_of(network), std::back_inserter(content.arrays));
  for (const auto& [key, value] : describe(network.arch(), metadata)) content.metadata[key] = value;
  content.metadata[kSelfTest] =
      json_text(Json{{"rows", selftest.rows}, {"x", selftest.x}, {"y", selftest.y}, {"J", selftest.j}});
  return lockstep::safetensors_bytes(content);
}

TrainedEmulator read_safetensors(std::string_view bytes, const std::string& source, EmulatorSelfTest& selftest) {
  NamedArrays content = safetensors_arrays(bytes, source);
  EmulatorDescription description = parse_description({content.metadata.begin(), content.metadata.end()}, source);
  for (const char* entry : {"data_xxh3", kSelfTest})
    require_model(content.metadata.contains(entry), source, "its metadata has no '", entry,
                  "'; the file is damaged or foreign");
  Tensors tensors;
  for (NamedArray& array : content.arrays) {
    require_model(array.values.index() < 2 && array.count() > 0, source, "array '", array.name, "' has dtype ",
                  array.stored, " and shape ", shape_text(array.shape), ", expected values F32 or F64");
    tensors.emplace(array.name, std::move(array));
  }
  description.moments = take_moments(tensors, "", description.arch, source);
  const Json rows = parse_json(content.metadata.at(kSelfTest));
  try {
    selftest.rows = rows.at("rows").get<std::int64_t>();
    selftest.x = rows.at("x").get<std::vector<double>>();
    selftest.y = rows.at("y").get<std::vector<double>>();
    selftest.j = rows.at("J").get<std::vector<double>>();
  } catch (const Json::exception& error) {
    throw Error(Fault::data, join("opening model '", source, "': metadata entry 'selftest': ", error.what()));
  }
  return assemble(std::move(description), tensors, source);
}

}  // namespace lockstep::files
