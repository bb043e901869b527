#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/base/json.hpp"
#include "lockstep/report/metric.hpp"

namespace lockstep {
class H5File;
}  // namespace lockstep

namespace lockstep::apps {

using Json = nlohmann::ordered_json;

/// JSON with a line break.
inline std::string line_of(const Json& json, int indent) { return json_text(json, indent) + "\n"; }

/// The facts that `lockstep info` shows about a data set, as JSON and as text.
/// errors  Error: usage if the file is missing; data if it is damaged or of another format
Json dataset_facts(const std::filesystem::path& path);
std::string dataset_text(const Json& facts);
/// The same for a checkpoint, after its verification.
Json checkpoint_facts(const std::filesystem::path& path);
std::string checkpoint_text(const Json& facts);
/// The same for an emulator's model file, after its verification.
Json model_facts(const std::filesystem::path& path);
std::string model_text(const Json& facts);
/// The same for a file that read_weights() reads.
Json weights_facts(const std::filesystem::path& path);
std::string weights_text(const Json& facts);

/// A value as text: a string without quotes, null as "-", a real number with six digits, others as JSON.
std::string text_of(const Json& value);
/// The values of metrics by name.
Json json_of(const std::vector<Metric>& metrics);
Json attributes_of(const H5File& file, const std::string& object);
std::string attributes_text(const Json& attributes);
/// Path -> type and shape of all datasets below a group.
Json contents_of(const H5File& file, const std::string& group);
std::string contents_text(const Json& contents);

}  // namespace lockstep::apps
