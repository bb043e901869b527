#include "lockstep/prep/sequences/interactions.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <tuple>

#include "lockstep/base/csv.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"
#include "prep/line_reader.hpp"
#include "prep/sequences/interaction_lines.hpp"

namespace lockstep::prep {

std::int32_t IdTable::intern(std::string_view id, Place place) {
  if (const auto found = numbers_.find(id); found != numbers_.end()) return found->second;
  require_data(ids_.size() < static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max() - 1),
               "reading interactions: more than 2^31 - 2 distinct ids");
  const auto [entry, inserted] = numbers_.emplace(std::string(id), static_cast<std::int32_t>(ids_.size()));
  ids_.push_back(&entry->first);
  places_.push_back(place);
  return entry->second;
}

const std::vector<std::string>& raw_formats() {
  static const std::vector<std::string> kFormats = {"movielens", "tsv4", "tsv3", "pairs", "triples", "csv"};
  return kFormats;
}

namespace {

/// A file being read, with the current line and its number for messages.
struct Reader {
  const std::filesystem::path& path;
  LineReader lines;
  std::int64_t line = 0;
  std::string text;

  explicit Reader(const std::filesystem::path& file) : path(file), lines(file) {}
  bool next() {
    if (!lines.next(text)) return false;
    ++line;
    return true;
  }
  bool blank() const { return text.find_first_not_of(" \t") == std::string::npos; }
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw Error(Fault::data, join("reading '", path.string(), "', line ", line, ": ", parts...));
  }
};

/// The beginning of a field, for messages.
std::string shown(const std::string& field) { return field.size() <= 40 ? field : field.substr(0, 40) + "..."; }

/// The positions of user, item, rating and time in a line.
struct Columns {
  std::size_t fields = 0, user = 0, item = 1;
  std::optional<std::size_t> rating, time;
  LineKind kind = LineKind::blanks;
  const char* form = "";  ///< for messages
};

Columns columns_of(const std::string& format) {
  if (format == "movielens") return {4, 0, 1, 2, 3, LineKind::double_colon, "user::item::rating::timestamp"};
  if (format == "tsv4") return {4, 0, 1, 2, 3, LineKind::tab, "user<TAB>item<TAB>rating<TAB>time"};
  if (format == "tsv3") return {3, 0, 1, {}, 2, LineKind::tab, "user<TAB>item<TAB>time"};
  if (format == "pairs") return {2, 0, 1, {}, {}, LineKind::blanks, "user item"};
  return {3, 0, 1, {}, 2, LineKind::blanks, "user item time"};
}

/// `user_id:token` names the column user_id.
std::vector<std::string> header_names(const std::string& line) {
  std::vector<std::string> names;
  std::vector<std::string> fields;
  if (!split_line(line, line.find('\t') != std::string::npos ? LineKind::tab : LineKind::comma, fields)) return names;
  for (const auto& field : fields) names.push_back(trim(field.substr(0, field.find(':'))));
  return names;
}

std::string detect(const Reader& reader, const RawOptions& options) {
  const std::string& line = reader.text;
  const auto names = header_names(line);
  if (std::find(names.begin(), names.end(), options.user_column) != names.end()) return "csv";
  if (line.find("::") != std::string::npos) return "movielens";
  std::vector<std::string> fields;
  const bool tab = line.find('\t') != std::string::npos;
  if (tab || line.find(',') == std::string::npos) {
    split_line(line, tab ? LineKind::tab : LineKind::blanks, fields);
    if (fields.size() == 2) return "pairs";
    if (fields.size() == 3) return tab ? "tsv3" : "triples";
    if (fields.size() == 4 && tab) return "tsv4";
    reader.fail("cannot tell the format: ", fields.size(), " fields separated by ", tab ? "tabs" : "blanks",
                "; name it with --format");
  }
  reader.fail("cannot tell the format: commas, but no header that names '", options.user_column,
              "'; name the columns with --user-column and --item-column");
}

Columns columns_of_header(const Reader& reader, const RawOptions& options) {
  const auto names = header_names(reader.text);
  const auto place = [&](const std::string& wanted) -> std::optional<std::size_t> {
    const auto found = std::find(names.begin(), names.end(), wanted);
    if (found == names.end()) return {};
    if (std::find(found + 1, names.end(), wanted) != names.end()) reader.fail("the header names '", wanted, "' twice");
    return static_cast<std::size_t>(found - names.begin());
  };
  const auto required = [&](const std::string& wanted, const char* option) {
    const auto at = place(wanted);
    if (!at) {
      const std::string near = nearest(wanted, names);
      reader.fail("the header has no column '", wanted, "'", near.empty() ? "" : "; did you mean '" + near + "'?", " (",
                  option, ")");
    }
    return *at;
  };
  Columns columns;
  columns.fields = names.size();
  columns.kind = reader.text.find('\t') != std::string::npos ? LineKind::tab : LineKind::comma;
  columns.form = "as the header names them";
  columns.user = required(options.user_column, "--user-column");
  columns.item = required(options.item_column, "--item-column");
  if (!options.time_column.empty()) {
    columns.time = required(options.time_column, "--time-column");
  } else {
    columns.time = place("timestamp");
    if (const auto other = place("time"); other && columns.time) {
      reader.fail("the header has both 'timestamp' and 'time'; choose one with --time-column");
    } else if (other) {
      columns.time = other;
    }
  }
  return columns;
}

Moment parse_time(const Reader& reader, const std::string& field) {
  switch (Moment value; read_time(field, value)) {
    case TimeFault::none:
      if (value.seconds < 0) reader.fail("time ", shown(field), " is negative, or a date before 1970");
      if (value.seconds <= kLargestTime) return value;
      [[fallthrough]];
    case TimeFault::too_large:
      reader.fail("time ", shown(field), " is out of range; the largest is ", kLargestTime);
    case TimeFault::no_time:
      break;
  }
  reader.fail("time '", shown(field), "' is neither a number of seconds nor a date like 2016-02-05T12:30:00Z");
}

std::string_view checked_id(const Reader& reader, const std::string& field, const char* what) {
  if (field.empty()) reader.fail("an empty ", what, " id");
  if (!is_clean_utf8(field)) reader.fail("the ", what, " id is not UTF-8 text");
  constexpr std::size_t kLongest = 1024;  // the file stores all ids with the length of the longest
  if (field.size() > kLongest)
    reader.fail("the ", what, " id '", shown(field), "' has ", field.size(), " bytes, at most ", kLongest,
                " are stored; is the separator right?");
  return field;
}

void read_file(Reader& reader, const RawOptions& options, Interactions& out) {
  const auto file = static_cast<std::int32_t>(out.files.size());
  bool more = reader.next();
  while (more && reader.blank()) more = reader.next();
  require_data(more, "reading '", reader.path.string(), "': no lines");
  const std::string format = options.format == "auto" ? detect(reader, options) : options.format;
  const bool csv = format == "csv";
  const Columns columns = csv ? columns_of_header(reader, options) : columns_of(format);
  require_data(out.files.empty() || out.has_time == columns.time.has_value(), "reading '", reader.path.string(),
               "': it has ", columns.time ? "times" : "no times", ", unlike '",
               out.files.empty() ? "" : out.files[0].string(), "'; give only files of one kind");
  out.has_time = columns.time.has_value();
  if (csv && !columns.time && out.unused.empty()) {
    for (const auto& name : header_names(reader.text))
      if (name != options.user_column && name != options.item_column) out.unused.push_back(name);
  }
  if (csv) more = reader.next();
  std::vector<std::string> fields;
  std::int64_t blank = 0;
  for (; more; more = reader.next()) {
    if (reader.blank()) {
      if (blank == 0) blank = reader.line;
      continue;
    }
    if (blank != 0) {
      reader.line = blank;
      reader.fail("an empty line amid the interactions");
    }
    if (!split_line(reader.text, columns.kind, fields)) reader.fail(kCsvDefect);
    if (fields.size() != columns.fields)
      reader.fail(fields.size(), fields.size() == 1 ? " field" : " fields", ", expected ", columns.fields, " (",
                  columns.form, ")");
    if (columns.rating && !is_number(fields[*columns.rating]))
      reader.fail("rating '", shown(fields[*columns.rating]), "' is not a number");
    const IdTable::Place place{file, reader.line};
    const auto user = checked_id(reader, fields[columns.user], "user");
    const auto item = checked_id(reader, fields[columns.item], "item");
    if (columns.time) {
      const Moment time = parse_time(reader, fields[*columns.time]);
      if (time.fraction > 0) out.fraction.resize(out.time.size(), 0);
      if (time.fraction > 0 || !out.fraction.empty()) out.fraction.push_back(time.fraction);
      out.time.push_back(time.seconds);
    }
    out.user.push_back(out.users.intern(user, place));
    out.item.push_back(out.items.intern(item, place));
  }
  out.files.push_back(reader.path);
  out.formats.push_back(format);
}

}  // namespace

std::int64_t repeated_lines(const Interactions& raw) {
  if (!raw.has_time) return 0;
  std::vector<std::int64_t> order(raw.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto key = [&](std::int64_t line) {
    const auto i = static_cast<std::size_t>(line);
    return std::tuple(raw.user[i], raw.item[i], raw.time[i], raw.fraction.empty() ? 0 : raw.fraction[i]);
  };
  std::sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return key(a) < key(b); });
  std::int64_t repeated = 0;
  for (std::size_t i = 1; i < order.size(); ++i) repeated += key(order[i]) == key(order[i - 1]);
  return repeated;
}

Interactions read_interactions(const std::vector<std::filesystem::path>& files, const RawOptions& options) {
  Interactions out;
  for (const auto& path : files) {
    Reader reader(path);
    read_file(reader, options, out);
  }
  require_data(out.size() > 0, "reading '", files.empty() ? "" : files[0].string(), "': no interactions");
  return out;
}

}  // namespace lockstep::prep
