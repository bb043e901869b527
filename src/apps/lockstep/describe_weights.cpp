#include "apps/lockstep/describe.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/io/weights.hpp"

namespace lockstep::apps {

Json weights_facts(const std::filesystem::path& path) {
  const NamedArrays content = read_weights(path);
  std::size_t values = 0;
  Json arrays = Json::object();
  for (const NamedArray& array : content.arrays) {
    values += array.count();
    arrays[array.name] = {{"type", array.stored}, {"shape", array.shape}};
  }
  return {{"file", path.string()}, {"size_bytes", std::filesystem::file_size(path)},
          {"whole", true},         {"values", values},
          {"arrays", arrays},      {"metadata", content.metadata}};
}

std::string weights_text(const Json& facts) {
  std::string out = text_of(facts["file"]) + ": weights, " + human_bytes(facts["size_bytes"].get<double>()) + "\n\n" +
                    aligned({{"arrays", std::to_string(facts["arrays"].size())}, {"values", text_of(facts["values"])}});
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, array] : facts["arrays"].items())
    rows.push_back({name, text_of(array["type"]), shape_text(array["shape"].get<std::vector<std::int64_t>>())});
  out += "\nArrays\n" + aligned(rows);
  Json metadata = facts["metadata"];
  metadata.erase("config");  // many lines; --json has them
  if (!metadata.empty()) out += "\nMetadata\n" + attributes_text(metadata);
  return out;
}

}  // namespace lockstep::apps
