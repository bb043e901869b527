#include <nlohmann/json.hpp>

#include "lockstep/base/json.hpp"

// A file of its own, so that a library that needs no ordered_json does not contain its parser and printer.
namespace lockstep {

nlohmann::ordered_json parse_ordered_json(std::string_view text) {
  return nlohmann::ordered_json::parse(text, nullptr, false);
}
std::string json_text(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace lockstep
