#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep {
class H5File;
}  // namespace lockstep

namespace lockstep::apps {

using Json = nlohmann::ordered_json;

/// What `lockstep info` says about a file, for scripts; and the same for people.
/// errors  Error: usage when missing; data when damaged or foreign
Json dataset_facts(const std::filesystem::path& path);
std::string dataset_text(const Json& facts);
/// A checkpoint, verified as a whole.
Json checkpoint_facts(const std::filesystem::path& path);
std::string checkpoint_text(const Json& facts);

/// Rows with aligned columns, indented by two.
std::string table(const std::vector<std::vector<std::string>>& rows);
/// A string without quotes, null as "-", a real number with six digits, anything else as JSON.
std::string text_of(const Json& value);
Json attributes_of(const H5File& file, const std::string& object);
std::string attributes_text(const Json& attributes);
/// Path -> type and shape of all datasets below a group.
Json contents_of(const H5File& file, const std::string& group);
std::string contents_text(const Json& contents);

}  // namespace lockstep::apps
