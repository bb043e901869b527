#include "lockstep/base/json.hpp"

#include <cstddef>
#include <nlohmann/json.hpp>

namespace lockstep {

nlohmann::json parse_json(std::string_view text, std::string* problem) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    if (problem != nullptr) *problem = error.what();
    return nlohmann::json(nlohmann::json::value_t::discarded);
  }
}
std::string json_text(const nlohmann::json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}
std::string json_quoted(const std::string& text) { return json_text(nlohmann::json(text)); }

bool nests_deeply(std::string_view json) {
  constexpr int kDeepest = 32;
  int depth = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < json.size() && depth <= kDeepest; ++i) {
    const char c = json[i];
    if (c == '"') in_text = !in_text;
    if (in_text && c == '\\') ++i;
    if (in_text) continue;
    depth += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
  }
  return depth > kDeepest;
}

}  // namespace lockstep
