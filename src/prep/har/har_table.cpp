#include <charconv>
#include <cmath>
#include <string_view>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/prep/har/har_signal.hpp"

namespace lockstep::prep {

namespace {

bool blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/// Splits a line at blanks, or at single commas with or without blanks. False when a comma lacks a field on one side.
bool fields_of(std::string_view line, std::vector<std::string_view>& fields) {
  fields.clear();
  std::size_t at = 0;
  const auto skip = [&] {
    while (at < line.size() && blank(line[at])) ++at;
  };
  skip();
  bool owed = false;  // a field must follow the comma
  while (at < line.size()) {
    const std::size_t begin = at;
    while (at < line.size() && !blank(line[at]) && line[at] != ',') ++at;
    if (at == begin) return false;
    fields.push_back(line.substr(begin, at - begin));
    skip();
    owed = at < line.size() && line[at] == ',';
    if (owed) ++at;
    skip();
  }
  return !owed;
}

bool number_of(std::string_view text, double& value) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failed == std::errc{} && end == text.data() + text.size();
}

}  // namespace

std::string TextTable::line_of(std::size_t row) const {
  return join(path.string(), ":", row + 1 + (header.empty() ? 0 : 1));
}

std::vector<double> TextTable::column(std::size_t c) const {
  std::vector<double> out(rows());
  for (std::size_t row = 0; row < out.size(); ++row) out[row] = at(row, c);
  return out;
}

TextTable read_text_table(const std::filesystem::path& path, std::size_t columns, Header header) {
  const std::string text = read_text_file(path);
  TextTable table;
  table.path = path;
  table.columns = columns;
  std::vector<std::string_view> fields;
  std::size_t line_number = 0, blank_line = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    ++line_number;
    const auto here = [&] { return join(path.string(), ":", line_number); };
    require_data(fields_of(line, fields), here(), ": a comma without a value beside it");
    if (fields.empty()) {
      if (blank_line == 0) blank_line = line_number;
      continue;
    }
    require_data(blank_line == 0, path.string(), ":", blank_line, ": a blank line within the table");
    double value = 0;
    if (line_number == 1 && header == Header::optional &&
        std::none_of(fields.begin(), fields.end(), [&](auto field) { return number_of(field, value); })) {
      table.header.assign(fields.begin(), fields.end());
      if (table.columns == 0) table.columns = fields.size();
      require_data(fields.size() == table.columns, here(), ": ", fields.size(), " names, expected ", table.columns);
      continue;
    }
    if (table.columns == 0) table.columns = fields.size();
    require_data(fields.size() == table.columns, here(), ": ", fields.size(), " values, expected ", table.columns);
    for (const auto field : fields) {
      require_data(number_of(field, value), here(), ": '", field, "' is not a number");
      require_data(std::isfinite(value), here(), ": ", field, " is not finite");
      table.values.push_back(value);
    }
  }
  require_data(!table.values.empty(), path.string(), ": no numbers in it");
  return table;
}

std::int32_t whole_number(const TextTable& table, std::size_t row, std::size_t column) {
  const double value = table.at(row, column);
  require_data(value == std::floor(value) && std::abs(value) < 2147483647.0, table.line_of(row), ": ", value,
               " is not a whole number");
  return static_cast<std::int32_t>(value);
}

}  // namespace lockstep::prep
