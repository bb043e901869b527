#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace lockstep {

// nlohmann's parse() and dump(), compiled once: each source that calls them takes a second longer.
/// A text as JSON: discarded, with the reason in `problem`, if it is none.
nlohmann::json parse_json(std::string_view text, std::string* problem = nullptr);
nlohmann::ordered_json parse_ordered_json(std::string_view text);
/// Bytes that are not UTF-8 become U+FFFD: a badly encoded name must not end a run. indent -1: on one line.
std::string json_text(const nlohmann::json& json, int indent = -1);
std::string json_text(const nlohmann::ordered_json& json, int indent = -1);
/// A text in quotes.
std::string json_quoted(const std::string& text);

/// Whether a JSON text nests more than 32 lists and objects. nlohmann::json recurses into each to copy or print it: a
/// file of brackets would exhaust the stack.
bool nests_deeply(std::string_view json);

}  // namespace lockstep
