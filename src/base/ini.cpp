// Boost's parse_config_file() reports neither line numbers nor which of two equal keys wins, so the grammar is ours.
#include <map>

#include "base/options_impl.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep {

std::string fold(std::string name) {
  for (char& c : name)
    if (c == '-' || c == '_') c = '.';
  return name;
}

namespace {

/// `"a # b" # comment` -> `a # b`.
std::string ini_value(std::string_view text, const std::string& where) {
  std::string raw = trim(text);
  if (!raw.starts_with('"')) {
    for (std::size_t i = 0; i < raw.size(); ++i)
      if ((raw[i] == '#' || raw[i] == ';') && (i == 0 || raw[i - 1] == ' ' || raw[i - 1] == '\t'))
        return trim(raw.substr(0, i));
    return raw;
  }
  std::string value;
  std::size_t i = 1;
  for (; i < raw.size() && raw[i] != '"'; ++i) {
    if (raw[i] == '\\' && i + 1 < raw.size()) {
      ++i;
      value += raw[i] == 'n' ? '\n' : raw[i];
    } else {
      value += raw[i];
    }
  }
  require_usage(i < raw.size(), where, ": the quote is not closed");
  const std::string rest = trim(std::string_view(raw).substr(i + 1));
  require_usage(rest.empty() || rest[0] == '#' || rest[0] == ';', where, ": '", rest, "' after the closing quote");
  return value;
}

}  // namespace

std::vector<IniEntry> read_ini(std::string_view text, const std::string& source) {
  std::vector<IniEntry> entries;
  std::map<std::string, int> lines;  // folded key -> line
  std::string section;
  int number = 0;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  for (const auto& raw : split(text, '\n')) {
    ++number;
    const std::string line = trim(raw);
    if (line.empty() || line[0] == '#' || line[0] == ';') continue;
    const std::string where = join(source, ":", number);
    if (line[0] == '[') {
      const auto close = line.find(']');
      const std::string rest = close == std::string::npos ? "" : trim(line.substr(close + 1));
      require_usage(close != std::string::npos && (rest.empty() || rest[0] == '#' || rest[0] == ';'), where, ": '",
                    line, "' is not a section like [optim]");
      section = trim(line.substr(1, close - 1));
      require_usage(!section.empty(), where, ": the section name is empty");
      continue;
    }
    const auto equals = line.find('=');
    require_usage(equals != std::string::npos, where, ": '", line, "' is neither [section] nor key = value");
    const std::string name = trim(line.substr(0, equals));
    require_usage(!name.empty() && name.find_first_of(" \t\"'[]#;") == std::string::npos, where, ": '", name,
                  "' is not a key; expected key = value");
    const std::string key = section.empty() ? name : section + "." + name;
    const auto [first, fresh] = lines.emplace(fold(key), number);
    require_usage(fresh, where, ": ", key, " is already set in line ", first->second);
    entries.push_back({key, ini_value(line.substr(equals + 1), where), number});
  }
  return entries;
}

}  // namespace lockstep
