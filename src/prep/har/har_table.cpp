#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <string_view>

#include "lockstep/base/csv.hpp"
#include "lockstep/base/date_time.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/number.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/io/line_reader.hpp"
#include "lockstep/prep/distinct_texts.hpp"
#include "lockstep/prep/har/har_signal.hpp"

namespace lockstep::prep {

namespace {

constexpr std::string_view kBlank = " \t";

/// "17" -> 17, "+1.5e3" -> 1500. With `comma`, also "1,5".
bool number_of(std::string_view text, bool comma, double& value) {
  if (text.starts_with('+')) text.remove_prefix(1);
  std::string copy;
  if (const auto at = comma ? text.find(',') : text.npos; at != text.npos && text.find('.') == text.npos) {
    copy = text;
    copy[at] = '.';
    text = copy;
  }
  return take_number(text, value) && text.empty();
}

/// How the lines of a table are cut into fields.
class Separator {
 public:
  /// Decides by a line that is not blank.
  void choose(std::string_view whole) {
    const std::string_view line = without_end(whole, ';');
    const auto outside_quotes = [&](char c) {
      bool quoted = false;
      return std::ranges::any_of(line, [&](char found) {
        if (found == '"') quoted = !quoted;
        return found == c && !quoted;
      });
    };
    std::vector<std::string_view> words;
    blank_fields(line, words);
    const bool numbers = words.size() > 1 && std::ranges::all_of(words, [](auto word) {
                           double value = 0;
                           return !word.ends_with(',') && number_of(word, true, value);
                         });
    with_ = outside_quotes(';')                                                 ? ';'
            : outside_quotes('\t') && !(numbers && line.find(' ') != line.npos) ? '\t'
            : outside_quotes(',') && !numbers                                   ? ','
                                                                                : ' ';
    const std::string_view ended = with_ == ';' ? whole : line;
    ends_ = with_ != ' ' && without_end(ended, with_).size() < ended.size();
  }
  /// Returns false as split_csv() does.
  bool split(std::string_view line, std::vector<std::string>& words, std::vector<std::string_view>& fields) const {
    fields.clear();
    if (with_ != ';') line = without_end(line, ';');
    if (ends_) line = without_end(line, with_);
    if (line.find_first_not_of(kBlank) == line.npos) return true;
    if (with_ == ' ') {
      blank_fields(line, fields);
      return true;
    }
    if (!split_csv(line, words, with_)) return false;
    for (auto& word : words) {
      word = trim(word);
      fields.emplace_back(word);
    }
    return true;
  }
  bool comma() const { return with_ == ','; }

 private:
  static std::string_view without_end(std::string_view line, char end) {
    const auto last = line.find_last_not_of(end == '\t' ? " " : kBlank);
    return last != line.npos && line[last] == end ? line.substr(0, last) : line;
  }
  static void blank_fields(std::string_view line, std::vector<std::string_view>& fields) {
    for (std::size_t at = line.find_first_not_of(kBlank); at != std::string_view::npos;) {
      const std::size_t end = std::min(line.find_first_of(kBlank, at), line.size());
      fields.push_back(line.substr(at, end - at));
      at = line.find_first_not_of(kBlank, end);
    }
  }
  char with_ = ' ';
  bool ends_ = false;  ///< lines end with a separator
};

/// Finds decimal commas between separating commas: every second column then holds the digits after a decimal point.
class CommaDecimals {
 public:
  void see(const std::vector<std::string_view>& fields, const std::vector<std::size_t>& channels) {
    constexpr std::string_view kDigits = "0123456789";
    digits_.resize(channels.size(), true);
    for (std::size_t c = 0; c < channels.size(); ++c) {
      const std::string_view field = fields[channels[c]];
      const bool digits = field.find_first_not_of(kDigits) == field.npos && !field.empty();
      digits_[c] = digits_[c] && digits;
      odd_ = odd_ || (digits && field.size() > 1 && field.front() == '0') || field == "-0";
      whole_ = whole_ && field.find_first_not_of(kDigits, field.starts_with('-') ? 1 : 0) == field.npos;
    }
  }
  /// Whether the columns from `first` on are whole numbers, every second one without a sign, and some of them are
  /// written as no whole number is: -0 or 07.
  bool found() const {
    if (!whole_ || !odd_) return false;
    for (const std::size_t first : {0u, 1u}) {
      bool all = digits_.size() >= first + 2 && (digits_.size() - first) % 2 == 0;
      for (std::size_t c = first + 1; c < digits_.size(); c += 2) all = all && digits_[c];
      if (all) return true;
    }
    return false;
  }

 private:
  std::vector<bool> digits_;  ///< of each column: digits only
  bool odd_ = false, whole_ = true;
};

/// Whether a line is 0, 1, 2, ... or 1, 2, 3, ..., perhaps after an empty field: what programs write above columns
/// without names, and their index.
bool counts_columns(const std::vector<std::string_view>& fields) {
  const std::size_t first = fields.front().empty() ? 1 : 0;
  if (fields.size() < first + 3) return false;
  const std::size_t start = fields[first] == "1" ? 1 : 0;
  for (std::size_t c = first; c < fields.size(); ++c)
    if (fields[c] != std::to_string(c - first + start)) return false;
  return true;
}

/// Seconds since 1970 of a date or, with dates of one day, of a clock time; or a plain number. NaN: missing.
bool time_of(std::string_view text, bool comma, double& value, bool& date) {
  if (is_missing(text)) {
    value = std::nan("");
    return true;
  }
  if (number_of(text, comma, value)) return std::isfinite(value);
  std::string iso(text);
  std::ranges::replace(iso, '/', '-');
  auto moment = parse_date_time(iso);
  if (!moment) moment = parse_date_time("1970-01-01 " + iso);
  if (!moment) return false;
  value = static_cast<double>(moment->seconds) + moment->fraction;
  return date = true;
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

bool is_missing(std::string_view field) {
  std::string lower(field);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower.empty() || lower == "nan" || lower == "na" || lower == "n/a" || lower == "?" || lower == "<na>";
}

bool says_time(std::string_view name) {
  // Words end at other characters and where a capital follows a small letter.
  std::vector<std::string> words(1);
  for (std::size_t i = 0; i < name.size(); ++i) {
    const auto c = static_cast<unsigned char>(name[i]);
    if (std::isalnum(c) == 0 ||
        (i > 0 && std::isupper(c) != 0 && std::islower(static_cast<unsigned char>(name[i - 1]))))
      words.emplace_back();
    if (std::isalnum(c) != 0) words.back() += static_cast<char>(std::tolower(c));
  }
  std::erase(words, "");
  static const std::set<std::string> kAlone = {"t",    "s",       "ms",   "us",     "ns",      "sec",
                                               "secs", "seconds", "msec", "millis", "elapsed", "date"},
                                     kWord = {"time", "times", "clock", "epoch"};
  if (words.size() == 1 && kAlone.contains(words.front())) return true;
  return std::ranges::any_of(words,
                             [](const std::string& word) {
                               return kWord.contains(word) || word.ends_with("timestamp") ||
                                      word.ends_with("timestamps") || word.ends_with("datetime") ||
                                      word.ends_with("unixtime");
                             }) ||
         (words.size() == 2 && words[1] == "elapsed" && kAlone.contains(words[0]));
}

namespace {
/// The positions of the columns that are read. errors  usage: there is no such column
struct Positions {
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::vector<std::size_t> channels;  ///< ascending unless `take` orders them
  std::size_t label = kNone, subject = kNone, time = kNone;

  Positions(const TextTable& table, const std::vector<std::string>& names, const ColumnChoice& choice) {
    const auto place = [&](const std::string& name) {
      const auto found = std::ranges::find(names, name);
      require_usage(found != names.end(), "reading '", table.path.string(), "': there is no column '", name,
                    "'; its columns are ", listed(names));
      require_data(std::find(found + 1, names.end(), name) == names.end(), "reading '", table.path.string(),
                   "': two columns are named '", name, "'; rename one");
      return static_cast<std::size_t>(found - names.begin());
    };
    std::vector<bool> used(names.size(), false);
    const auto key = [&](const std::string& name, std::size_t& at) {
      if (!name.empty()) used[at = place(name)] = true;
    };
    key(choice.label, label);
    key(choice.subject, subject);
    if (choice.time != "none") key(choice.time, time);
    for (const auto& name : choice.take) {
      channels.push_back(place(name));
      require_usage(!used[channels.back()], "reading '", table.path.string(), "': column '", name,
                    "' is chosen for a channel and for labels, subjects or times");
      used[channels.back()] = true;
    }
    // Columns whose names say time become no channels unless `take` names them; the first one gives the times, but a
    // date only if no other does.
    const auto is_date = [&](std::size_t c) { return names[c] == "date" || names[c] == "Date" || names[c] == "DATE"; };
    for (std::size_t c = 0; c < names.size() && choice.time.empty(); ++c) {
      if (used[c] || !says_time(names[c])) continue;
      if (time == kNone || (is_date(time) && !is_date(c))) time = c;
      used[c] = true;
    }
    for (const auto& name : choice.skip) used[place(name)] = true;
    for (std::size_t c = 0; c < names.size() && choice.take.empty(); ++c)
      if (!used[c]) channels.push_back(c);
    require_usage(!channels.empty(), "reading '", table.path.string(), "': none of its ", names.size(),
                  " columns is left");
  }
};
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
  std::optional<Positions> at;
  Separator separator;
  CommaDecimals decimals;
  DistinctTexts<> labels, subjects;
  std::size_t line_number = 0, blank_line = 0, chosen_by = 0;
  while (lines.next(line)) {
    ++line_number;
    const auto here = [&] { return join(path.string(), ":", line_number); };
    const bool blank = line.find_first_not_of(kBlank) == line.npos;
    if (!blank && chosen_by == 0) separator.choose(line), chosen_by = line_number;
    require_data(separator.split(line, words, fields), here(), ": ", kCsvDefect);
    if (fields.empty()) {
      if (blank_line == 0) blank_line = line_number;
      continue;
    }
    require_data(blank_line == 0, path.string(), ":", blank_line, ": a blank line within the table");
    double value = 0;
    const auto number = [&](std::string_view field) { return number_of(field, !separator.comma(), value); };
    const bool named = line_number == 1 && header == Header::optional &&
                       (std::ranges::none_of(fields, number) || counts_columns(fields));
    if (table.fields == 0) table.fields = fields.size();
    require_data(fields.size() == table.fields, here(), ": ", fields.size(), named ? " names" : " values",
                 ", expected ", table.fields);
    if (named) {
      table.header.assign(fields.begin(), fields.end());
      std::string& name = table.header.front();  // numpy writes "# x,y,z"
      if (name.starts_with('#')) name = trim(std::string_view(name).substr(1));
      chosen_by = 0;
    }
    if (!at) {
      auto names = named ? table.header : choice.header;
      names.resize(table.fields);
      for (std::size_t c = 0; c < names.size(); ++c)
        if (names[c].empty()) names[c] = join("channel_", c);
      at.emplace(table, names, choice);
      table.columns = at->channels.size();
      for (const std::size_t c : at->channels) table.names.push_back(names[c]);
      if (at->time != Positions::kNone) table.time_name = names[at->time];
      for (std::size_t c = 0; c < names.size(); ++c)
        if (c != at->label && c != at->subject && c != at->time &&
            std::ranges::find(at->channels, c) == at->channels.end())
          table.aside.push_back(names[c]);
    }
    if (named) continue;
    if (separator.comma() && table.header.empty()) decimals.see(fields, at->channels);
    for (const std::size_t c : at->channels) {
      if (choice.missing && is_missing(fields[c])) {
        table.values.push_back(std::nan(""));
        continue;
      }
      require_data(!fields[c].empty(), here(), ": an empty field");
      require_data(number(fields[c]), here(), ": '", fields[c], "' is not a number");
      require_data(std::isfinite(value), here(), ": ", fields[c], " is not finite");
      require_data(std::abs(value) <= std::numeric_limits<float>::max(), here(), ": ", fields[c],
                   " does not fit 32-bit floats");
      table.values.push_back(value);
    }
    if (at->label != Positions::kNone) table.labels.of_row.push_back(labels.intern(fields[at->label]));
    if (at->subject != Positions::kNone) table.subjects.of_row.push_back(subjects.intern(fields[at->subject]));
    if (at->time == Positions::kNone) continue;
    require_data(time_of(fields[at->time], !separator.comma(), value, table.dates), here(), ": '", fields[at->time],
                 "' in column ", table.time_name,
                 " is neither a number nor a date like 2026-05-17 09:30:00.25; "
                 "--time-column names another column, or none");
    table.times.push_back(value);
  }
  require_data(!table.values.empty(), path.string(), ": no numbers in it");
  table.labels.words = labels.ids();
  table.subjects.words = subjects.ids();
  table.comma_decimals = decimals.found();
  return table;
}

std::int32_t whole_number(const TextTable& table, std::size_t row, std::size_t column) {
  const double value = table.at(row, column);
  require_data(value == std::floor(value) && std::abs(value) < 2147483647.0, table.line_of(row), ": ", value,
               " is not a whole number");
  return static_cast<std::int32_t>(value);
}

}  // namespace lockstep::prep
