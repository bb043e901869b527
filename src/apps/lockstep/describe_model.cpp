#include "apps/lockstep/describe.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/formats/emulator_files.hpp"

namespace lockstep::apps {

namespace {

Json columns_of(const std::vector<std::string>& names, const std::vector<std::string>& units) {
  Json columns = Json::array();
  for (std::size_t i = 0; i < names.size(); ++i) columns.push_back({{"name", names[i]}, {"unit", units[i]}});
  return columns;
}

std::string list_of(const Json& columns) {
  return listed(columns, ", ", [](const Json& c) { return text_of(c["name"]) + " [" + text_of(c["unit"]) + "]"; });
}

}  // namespace

Json model_facts(const std::filesystem::path& path) {
  const TrainedEmulator emulator = read_emulator(path);  // verifies checksum and self-test
  const EmulatorArch& arch = emulator.network.arch();
  const EmulatorVariables& variables = emulator.metadata.variables;
  Json meta = Json::object();
  for (const auto& [key, value] : emulator.metadata.meta) meta[key] = value;
  return {{"file", path.string()},
          {"size_bytes", std::filesystem::file_size(path)},
          {"whole", true},
          {"hidden", arch.hidden},
          {"layers", arch.layers},
          {"activation", name(arch.activation)},
          {"parameters", arch.parameters()},
          {"type", name(emulator.network.dtype())},
          {"inputs", columns_of(variables.input_names, variables.input_units)},
          {"outputs", columns_of(variables.output_names, variables.output_units)},
          {"mask_variable", emulator.metadata.mask.variable},
          {"meta", meta}};
}

std::string model_text(const Json& facts) {
  std::string out = text_of(facts["file"]) + ": model file of an emulator, whole, " +
                    human_bytes(facts["size_bytes"].get<double>()) + "\n\n" +
                    aligned({{"network", text_of(facts["layers"]) + " hidden layers of " + text_of(facts["hidden"]) +
                                             ", " + text_of(facts["activation"]) + ", " + text_of(facts["type"])},
                             {"parameters", text_of(facts["parameters"])},
                             {"inputs", list_of(facts["inputs"])},
                             {"outputs", list_of(facts["outputs"])}});
  if (!facts["mask_variable"].get<std::string>().empty())
    out += aligned({{"mask variable", text_of(facts["mask_variable"])}});
  if (!facts["meta"].empty()) out += "\nOrigin\n" + attributes_text(facts["meta"]);
  return out;
}

}  // namespace lockstep::apps
