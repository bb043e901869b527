#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>

#include "lockstep/base/csv.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/prep/har/har_signal.hpp"
#include "lockstep/io/line_reader.hpp"

namespace lockstep::prep {

namespace {

/// Splits a line at commas, with CSV quotes, or at blanks if it has no comma. Returns false as split_csv() does.
bool fields_of(std::string_view line, std::vector<std::string>& words, std::vector<std::string_view>& fields) {
  constexpr std::string_view kBlank = " \t";
  fields.clear();
  if (line.find(',') != std::string_view::npos) {
    if (!split_csv(line, words)) return false;
    for (auto& word : words) {
      word = trim(word);
      fields.emplace_back(word);
    }
    return true;
  }
  for (std::size_t at = line.find_first_not_of(kBlank); at != std::string_view::npos;) {
    const std::size_t end = std::min(line.find_first_of(kBlank, at), line.size());
    fields.push_back(line.substr(at, end - at));
    at = line.find_first_not_of(kBlank, end);
  }
  return true;
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

namespace {
/// The positions of the chosen columns, ascending unless `take` orders them. errors  usage: there is no such column
std::vector<std::size_t> positions(const TextTable& table, const std::vector<std::string>& names,
                                   const ColumnChoice& choice) {
  const auto place = [&](const std::string& name) {
    const auto found = std::ranges::find(names, name);
    require_usage(found != names.end(), "reading '", table.path.string(), "': there is no column '", name,
                  "'; its columns are ", listed(names));
    require_data(std::find(found + 1, names.end(), name) == names.end(), "reading '", table.path.string(),
                 "': two columns are named '", name, "'; rename one");
    return static_cast<std::size_t>(found - names.begin());
  };
  std::vector<std::size_t> out;
  for (const auto& name : choice.take) out.push_back(place(name));
  if (!out.empty()) return out;
  std::vector<bool> skipped(names.size(), false);
  for (const auto& name : choice.skip) skipped[place(name)] = true;
  for (std::size_t c = 0; c < names.size(); ++c) {
    if (!skipped[c]) out.push_back(c);
  }
  require_usage(!out.empty(), "reading '", table.path.string(), "': none of its ", names.size(), " columns is left");
  return out;
}
}  // namespace

TextTable read_text_table(const std::filesystem::path& path, std::size_t fields_expected, Header header,
                          const ColumnChoice& choice) {
  LineReader lines(path);
  TextTable table;
  table.path = path;
  table.fields = fields_expected;
  std::string line;
  std::vector<std::string> words;
  std::vector<std::string_view> fields;
  std::vector<std::size_t> chosen;
  std::size_t line_number = 0, blank_line = 0;
  while (lines.next(line)) {
    ++line_number;
    const auto here = [&] { return join(path.string(), ":", line_number); };
    require_data(fields_of(line, words, fields), here(), ": ", kCsvDefect);
    if (fields.empty()) {
      if (blank_line == 0) blank_line = line_number;
      continue;
    }
    require_data(blank_line == 0, path.string(), ":", blank_line, ": a blank line within the table");
    double value = 0;
    const bool named = line_number == 1 && header == Header::optional &&
                       std::ranges::none_of(fields, [&](auto field) { return number_of(field, value); });
    if (table.fields == 0) table.fields = fields.size();
    require_data(fields.size() == table.fields, here(), ": ", fields.size(), named ? " names" : " values",
                 ", expected ", table.fields);
    if (named) table.header.assign(fields.begin(), fields.end());
    if (chosen.empty()) {
      auto names = named ? table.header : choice.header;
      names.resize(table.fields);
      for (std::size_t c = 0; c < names.size(); ++c) {
        if (names[c].empty()) names[c] = join("channel_", c);
      }
      chosen = positions(table, names, choice);
      table.columns = chosen.size();
      for (const std::size_t c : chosen) table.names.push_back(names[c]);
    }
    if (named) continue;
    for (const std::size_t c : chosen) {
      require_data(!fields[c].empty(), here(), ": an empty field");
      require_data(number_of(fields[c], value), here(), ": '", fields[c], "' is not a number");
      require_data(std::isfinite(value), here(), ": ", fields[c], " is not finite");
      require_data(std::abs(value) <= std::numeric_limits<float>::max(), here(), ": ", fields[c],
                   " does not fit 32-bit floats");
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
