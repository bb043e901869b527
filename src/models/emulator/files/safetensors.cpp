#include <nlohmann/json.hpp>

#include "files.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/io/weights.hpp"

/// An emulator as safetensors. Weights keep their names (network.0.weight); normalisation is input_mean, input_std,
/// output_mean, output_std (F64); description, self-test and checksums are strings in __metadata__.
namespace lockstep::files {
namespace {

using Json = nlohmann::json;
constexpr const char* kSelfTest = "selftest";

NamedArray array_of(const FileTensor& tensor) {
  NamedArray out;
  out.name = tensor.name;
  out.shape = tensor.shape;
  visit_float(tensor.dtype, [&]<class T>() {
    const auto* values = static_cast<const T*>(tensor.data);
    out.values = std::vector<T>(values, values + tensor.count());
  });
  return out;
}

/// Views of the arrays. errors  data: an array of integers, or without elements
Tensors views_of(const NamedArrays& content, const std::string& source) {
  Tensors tensors;
  for (const NamedArray& array : content.arrays) {
    require_data(array.values.index() < 2 && array.count() > 0, "opening model '", source, "': array '", array.name,
                 "' has dtype ", array.stored, " and shape ", shape_text(array.shape), ", expected values F32 or F64");
    const void* data = std::visit([](const auto& values) -> const void* { return values.data(); }, array.values);
    tensors.emplace(array.name,
                    FileTensor{array.name, array.values.index() == 0 ? DType::f32 : DType::f64, array.shape, data});
  }
  return tensors;
}

}  // namespace

std::string safetensors_bytes(const Emulator& network, const EmulatorMetadata& metadata) {
  const EmulatorSelfTest selftest = make_selftest(network);
  NamedArrays content;
  for (const FileTensor& tensor : moments_of(network.moments(), "")) content.arrays.push_back(array_of(tensor));
  for (const FileTensor& tensor : weights_of(network)) content.arrays.push_back(array_of(tensor));
  for (const auto& [key, value] : describe(network.arch(), metadata)) content.metadata[key] = value;
  content.metadata[kSelfTest] =
      Json{{"rows", selftest.rows}, {"x", selftest.x}, {"y", selftest.y}, {"J", selftest.j}}.dump();
  return lockstep::safetensors_bytes(content);
}

TrainedEmulator read_safetensors(std::string_view bytes, const std::string& source, EmulatorSelfTest& selftest) {
  const NamedArrays content = safetensors_arrays(bytes, source);
  Description description = parse_description({content.metadata.begin(), content.metadata.end()}, source);
  for (const char* entry : {"data_xxh3", kSelfTest})
    require_data(content.metadata.contains(entry), "opening model '", source, "': its metadata has no '", entry,
                 "'; the file is damaged or foreign");
  Tensors tensors = views_of(content, source);
  const Moments moments = take_moments(tensors, "", description.arch, source);
  const Json rows = Json::parse(content.metadata.at(kSelfTest), nullptr, false);
  try {
    selftest.rows = rows.at("rows").get<std::int64_t>();
    selftest.x = rows.at("x").get<std::vector<double>>();
    selftest.y = rows.at("y").get<std::vector<double>>();
    selftest.j = rows.at("J").get<std::vector<double>>();
  } catch (const Json::exception& error) {
    throw Error(Fault::data, join("opening model '", source, "': metadata entry 'selftest': ", error.what()));
  }
  return assemble(std::move(description), moments, tensors, source);
}

}  // namespace lockstep::files
