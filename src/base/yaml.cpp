// The part of YAML that configurations of the public programs use. A YAML library would read far more than the table of
// options can hold.
#include <map>

#include "base/options_impl.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep {

namespace {

/// `'a' # comment` -> `a`. errors  Error (usage): a value that is no scalar
std::string scalar(std::string_view text, const std::string& where) {
  std::string raw = trim(text);
  if (!raw.empty() && (raw[0] == '"' || raw[0] == '\'')) {
    const auto close = raw.find(raw[0], 1);
    require_usage(close != std::string::npos, where, ": the quote is not closed");
    const std::string rest = trim(std::string_view(raw).substr(close + 1));
    require_usage(rest.empty() || rest[0] == '#', where, ": '", rest, "' after the closing quote");
    return raw.substr(1, close - 1);
  }
  if (const auto comment = raw.find(" #"); comment != std::string::npos) raw = trim(raw.substr(0, comment));
  if (raw.starts_with('#')) raw.clear();
  constexpr std::string_view kOther = "&*{}!|>%@`[]";
  require_usage(raw.empty() || kOther.find(raw[0]) == std::string_view::npos, where, ": '", raw,
                "' is not a scalar; anchors, maps in braces and texts of several lines are not read");
  return raw == "null" || raw == "~" ? "" : raw;
}

std::string scalar_or_list(std::string_view text, const std::string& where) {
  const std::string raw = trim(text);
  if (!raw.starts_with('[')) return scalar(raw, where);
  const auto close = raw.find(']');
  require_usage(close != std::string::npos, where, ": the list is not closed in its line");
  return listed(split(raw.substr(1, close - 1), ','), ",",
                [&](const std::string& each) { return scalar(each, where); });
}

}  // namespace

std::vector<IniEntry> read_yaml(std::string_view text, const std::string& source) {
  std::vector<IniEntry> entries;
  std::map<std::string, int> lines;  // folded key -> line
  struct Map {
    std::size_t indent;  // of its keys
    std::string prefix;
  };
  std::vector<Map> maps = {{0, ""}};  // that are open
  std::string opening;                // the last key, if it has no value: a map may follow
  bool in_list = false;               // lines `- a` may follow
  int number = 0;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  for (const std::string& raw : split(text, '\n')) {
    const std::string where = join(source, ":", ++number), line = trim(raw);
    if (line.empty() || line[0] == '#' || line == "---") continue;
    const std::size_t indent = raw.find_first_not_of(' ');
    require_usage(raw[indent] != '\t', where, ": a tab before the key; indent with blanks");
    if (line.starts_with("- ")) {
      require_usage(in_list && line.find(": ") == std::string::npos, where, ": '", line,
                    "': only lists of scalars below a key are read");
      std::string& value = entries.back().value;
      value += (value.empty() ? "" : ",") + scalar(line.substr(2), where);
      opening.clear();
      continue;
    }
    const auto colon = line.find(':');
    require_usage(colon != std::string::npos && (colon + 1 == line.size() || line[colon + 1] == ' '), where, ": '",
                  line, "' is neither section: nor key: value");
    const std::string name = trim(line.substr(0, colon)), value = scalar_or_list(line.substr(colon + 1), where);
    if (indent > maps.back().indent && !opening.empty()) {
      maps.push_back({indent, opening + "."});
      entries.pop_back();  // the entry of the key
    }
    while (indent < maps.back().indent) maps.pop_back();
    require_usage(indent == maps.back().indent, where, ": '", line,
                  "' is indented otherwise than the keys of its map, by ", maps.back().indent, " blanks");
    const std::string key = maps.back().prefix + name;
    opening = value.empty() ? key : "";
    const auto [first, fresh] = lines.emplace(fold(key), number);
    require_usage(fresh, where, ": ", key, " is already set in line ", first->second);
    in_list = value.empty();
    entries.push_back({key, value, number});
  }
  return entries;
}

}  // namespace lockstep
