#include "lockstep/io/interaction_file.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "lockstep/base/csv.hpp"
#include "lockstep/base/json.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/io/interaction_lines.hpp"
#include "lockstep/io/line_reader.hpp"

namespace lockstep {

namespace {
using Names = std::vector<std::string>;

/// The formats without a header.
struct Preset {
  const char* name;
  Separator separator;
  Names columns;
};
const std::vector<Preset>& presets() {
  static const std::vector<Preset> kPresets = {
      {"movielens", Separator::double_colon, {"user", "item", "rating", "time"}},
      {"tsv4", Separator::tab, {"user", "item", "rating", "time"}},
      {"tsv3", Separator::tab, {"user", "item", "time"}},
      {"pairs", Separator::tab, {"user", "item"}},
      {"pairs", Separator::blanks, {"user", "item"}},
      {"triples", Separator::blanks, {"user", "item", "time"}}};
  return kPresets;
}

/// Which column has the users, the items or the times.
struct Role {
  const char *word, *option;
  std::string InteractionOptions::*column;
  Names usual;
};
const std::array<Role, 3>& roles() {
  static const std::array<Role, 3> kRoles = {
      {{"user", "--user-column", &InteractionOptions::user_column, {"user_id", "user", "userId", "reviewerID"}},
       {"item", "--item-column", &InteractionOptions::item_column, {"item_id", "item", "itemId", "movieId", "asin"}},
       {"time", "--time-column", &InteractionOptions::time_column, {"timestamp", "time", "unixReviewTime"}}}};
  return kRoles;
}

/// `rating >= 4`.
struct Filter {
  std::string text, column, sign, value;
  std::size_t at = 0;              ///< of the column
  const TimeUnit* unit = nullptr;  ///< of the column of times, whose values are compared as times

  explicit Filter(const std::string& condition) : text(condition) {
    const std::size_t begin = std::min(text.find_first_of("<>=!"), text.size());
    const std::size_t end = std::min(text.find_first_not_of("<>=!", begin), text.size());
    column = trim(text.substr(0, begin));
    sign = text.substr(begin, end - begin);
    value = trim(text.substr(end));
    if (value.size() > 1 && (value[0] == '"' || value[0] == '\'') && value.back() == value[0])
      value = value.substr(1, value.size() - 2);
    if (sign == "==") sign = "=";
    const std::set<std::string> signs = {"=", "!=", "<", "<=", ">", ">="};
    require_usage(!column.empty() && signs.contains(sign), "option where = '", text,
                  "': expected a column, one of = != < <= > >= and a value, such as 'rating >= 4'");
  }
  /// Compares numbers, times, or texts byte by byte; nullopt if only one of field and value is a number.
  std::optional<bool> holds(const std::string& field) const {
    double left = 0, right = 0;
    const bool number_left = reads(field, left), number_right = reads(value, right);
    const int order = number_left && number_right ? (left > right) - (left < right) : field.compare(value);
    if (sign == "=") return order == 0;
    if (sign == "!=") return order != 0;
    if (field.empty()) return false;
    if (number_left != number_right) return {};
    return (order < 0 && sign[0] == '<') || (order > 0 && sign[0] == '>') || (order == 0 && sign.size() == 2);
  }
  bool reads(const std::string& word, double& number) const {
    if (unit == nullptr) return is_number(word, &number);
    Moment moment;
    const bool read = read_time(word, moment, *unit) == TimeFault::none;
    number = static_cast<double>(moment.seconds) + moment.fraction;
    return read;
  }
};

/// The names of columns that usually have a role, whatever their capitals.
Names usual_names(const Names& columns, const Role& role) {
  const auto lower = [](unsigned char c) { return std::tolower(c); };
  const auto is_usual = [&](const std::string& column) {
    return std::ranges::any_of(
        role.usual, [&](const std::string& usual) { return std::ranges::equal(column, usual, {}, lower, lower); });
  };
  Names found;
  std::ranges::copy_if(columns, std::back_inserter(found), is_usual);
  return found;
}

/// The beginning of a field, for messages.
std::string shown(const std::string& field) { return field.size() <= 40 ? field : field.substr(0, 40) + "..."; }

/// `user_id:token` names the column user_id.
Names header_names(const std::string& line) {
  Names names, fields;
  if (!split_line(line, separator_of(line), fields)) return names;
  for (const auto& field : fields) names.push_back(trim(field.substr(0, field.find(':'))));
  return names;
}

void check_positions(const Names& columns) {
  if (columns.empty()) return;
  std::set<std::string> known;
  for (const auto& column : columns)
    require_usage(column == "-" || known.insert(column).second, "option columns: '", column, "' occurs twice");
  require_usage(known.contains("user") && known.contains("item"), "option columns = ", listed(columns),
                ": name every column of the file, one of them user and one item, such as user,item,-,time");
}
}  // namespace

const std::vector<std::string>& interaction_formats() {
  static const Names kFormats = {"movielens", "tsv4", "tsv3", "pairs", "triples", "csv", "json"};
  return kFormats;
}

const std::vector<std::string>& time_units() {
  static const Names kUnits = [] {
    Names names;
    for (const TimeUnit& unit : kTimeUnits) names.emplace_back(unit.name);
    return names;
  }();
  return kUnits;
}

struct InteractionFile::State {
  const std::filesystem::path path;
  const InteractionOptions options;
  LineReader lines;
  std::int64_t line = 0;
  std::string text, header;
  bool more = true, pending = false;  ///< pending: the current line is the first with data
  std::string format;
  Separator separator = Separator::blanks;
  Names names, fields;
  std::size_t user = 0, item = 0;
  std::optional<std::size_t> when;
  Moment time;
  TimeUnit unit;
  std::vector<Filter> conditions;
  std::vector<bool> named;  ///< JSON: whether a line had the key of a condition
  Counts counts;

  State(const std::filesystem::path& file, const InteractionOptions& with) : path(file), options(with), lines(file) {}
  [[noreturn]] void fail(const auto&... parts) const {
    throw Error(Fault::data, join("reading '", path.string(), "', line ", line, ": ", parts...));
  }
  bool json() const { return format == "json"; }
  bool headed() const { return format == "csv" || json(); }

  /// Moves to the next line that is not empty.
  bool next_line() {
    const std::int64_t before = line;
    while ((more = lines.next(text))) {
      ++line;
      if (text.find_first_not_of(" \t") != std::string::npos) break;
    }
    if (more && before > 0) counts.empty += line - before - 1;
    return more;
  }

  void open() {
    require_data(next_line(), "reading '", path.string(), "': no lines");
    separator = separator_of(text);
    find_format();
    if (headed()) find_columns();
    const auto place = [&](const char* role) { return std::find(names.begin(), names.end(), role) - names.begin(); };
    if (!headed()) {
      user = static_cast<std::size_t>(place("user"));
      item = static_cast<std::size_t>(place("item"));
      if (const auto at = static_cast<std::size_t>(place("time")); at < names.size()) when = at;
    }
    for (const auto& condition : options.where) {
      conditions.emplace_back(condition);
      const auto at = required(conditions.back().column, "--where");
      conditions.back().at = at;
      if (at == when) conditions.back().unit = &unit;
    }
    named.assign(conditions.size(), !json());
    counts.left_out.assign(conditions.size(), 0);
    pending = format != "csv";
    if (!pending) header = text;
  }

  /// The name of a format, and the separator and columns of one without a header.
  void find_format() {
    const auto start = text.find_first_not_of(" \t");
    if (!options.columns.empty()) {
      if (names_columns()) fail("a header, but --columns describes files without one; leave it out");
      format = "columns";
      names = options.columns;
      return;
    }
    format = options.format;
    const bool automatic = format == "auto";
    if (automatic && text[start] == '{') format = "json";
    if (automatic && text[start] == '[')
      fail("a JSON array; an object per line can be read: jq -c '.[]' '", path.string(), "'");
    if (format == "auto" && names_columns()) format = "csv";
    if (headed()) return;
    Names first;
    split_line(text, separator, first);
    for (const auto& preset : presets()) {
      const bool same_separator = preset.separator == separator;
      const bool same_width = preset.columns.size() == first.size() || separator == Separator::double_colon;
      const bool chosen =
          automatic ? same_separator && same_width : format == preset.name && (same_separator || format != "pairs");
      if (!chosen) continue;
      format = preset.name;
      separator = preset.separator;
      names = preset.columns;
      return;
    }
    if (format == "pairs") fail(first.size(), " fields separated by ", name(separator), ", expected two");
    fail("cannot tell the format: ", first.size(), first.size() == 1 ? " field" : " fields separated by ",
         first.size() == 1 ? "" : name(separator), ", and no column is called ", listed(roles()[0].usual),
         "; if this line is a header, name its columns with --user-column, --item-column and --time-column, otherwise "
         "name all columns by position, such as --columns user,item,-,time");
  }

  /// Whether the first line is a header: an option or the usual names say so.
  bool names_columns() const {
    for (const auto& role : roles())
      if (!(options.*role.column).empty()) return true;
    return !usual_names(header_names(text), roles()[0]).empty();
  }

  std::string where_names_are() const { return json() ? "the object" : headed() ? "the header" : "the file"; }

  std::size_t required(const std::string& wanted, const char* option) {
    const auto found = std::find(names.begin(), names.end(), wanted);
    if (found == names.end() && json() && option == std::string("--where")) {
      names.push_back(wanted);  // other lines may have it
      return names.size() - 1;
    }
    if (found == names.end()) {
      for (const auto& name : names) check_utf8(name, "header");
      const std::string near = nearest(wanted, names);
      fail(where_names_are(), " has no column '", wanted, "'", near.empty() ? "" : "; did you mean '" + near + "'?",
           " (", option, "; it has ", listed(names), ")");
    }
    if (std::find(found + 1, names.end(), wanted) != names.end())
      fail(where_names_are(), " names '", wanted, "' twice");
    return static_cast<std::size_t>(found - names.begin());
  }

  void find_columns() {
    if (json()) {
      const nlohmann::json first = object();
      for (const auto& [key, value] : first.items()) names.push_back(key);
    } else {
      names = header_names(text);
    }
    const auto place = [&](const Role& role) -> std::optional<std::size_t> {
      const auto& wanted = options.*role.column;
      if (wanted == "-") return {};
      if (!wanted.empty()) return required(wanted, role.option);
      const Names present = usual_names(names, role);
      if (present.empty()) return {};
      if (present.size() > 1 && present[0] != present[1])
        fail(where_names_are(), " has both '", present[0], "' and '", present[1], "'; choose one with ", role.option);
      return required(present[0], role.option);
    };
    const auto must = [&](const Role& role) {
      const auto at = place(role);
      if (!at)
        fail(where_names_are(), " has no column called ", listed(role.usual), ", but ", listed(names), "; name the ",
             role.word, "s with ", role.option);
      return *at;
    };
    user = must(roles()[0]);
    item = must(roles()[1]);
    when = place(roles()[2]);
  }

  /// The object of the current line.
  nlohmann::json object() const {
    nlohmann::json read = parse_json(text);
    if (read.is_object()) return read;
    const auto start = text.find_first_not_of(" \t{");
    const bool python = start != std::string::npos && (text[start] == '\'' || text.compare(start, 2, "u'") == 0);
    if (python)
      fail(
          "a Python dictionary, not a JSON object; this writes objects: python3 -c 'import ast, json, sys; "
          "[print(json.dumps(ast.literal_eval(line))) for line in sys.stdin]' < '",
          path.string(), "' > new.jsonl");
    fail("not a JSON object in one line");
  }

  static std::string text_of(const nlohmann::json& value) {
    if (value.is_null()) return "";
    return value.is_string() ? value.get<std::string>() : json_text(value);
  }

  /// Fills `fields` with the columns that are used.
  void read_fields() {
    if (json()) {
      const nlohmann::json read = object();
      fields.assign(names.size(), "");
      const auto take = [&](std::size_t at) {
        const auto found = read.find(names[at]);
        if (found == read.end()) return false;
        if (found->is_structured()) fail("'", names[at], "' is a list or an object, not an id, a number or a text");
        if (found->is_number_float() && (at == user || at == item) && std::abs(found->get<double>()) >= 0x1p53)
          fail("the number '", names[at], "' is read as ", json_text(*found),
               ", so others become the same id; quote ids");
        fields[at] = trim(text_of(*found));
        return true;
      };
      take(user);
      take(item);
      if (when) take(*when);
      for (const auto& usual : roles()[2].usual)
        if (!when && options.time_column.empty() && read.contains(usual))
          fail("it has '", usual,
               "', which the first object lacks; give all of them times, or --time-column - for none");
      for (std::size_t c = 0; c < conditions.size(); ++c)
        if (take(conditions[c].at)) named[c] = true;
      return;
    }
    if (!split_line(text, separator, fields)) fail(kCsvDefect);
    if (fields.size() != names.size())
      fail(fields.size(), fields.size() == 1 ? " field" : " fields", " separated by ", name(separator), ", expected ",
           names.size(), " (", listed(names), ")");
    for (auto& field : fields) {
      std::string_view bare = field;
      for (std::size_t before = 0; before != bare.size();) {
        before = bare.size();
        for (const std::string_view blank : {" ", "\t", "\xC2\xA0"}) {  // the last is a no-break space
          if (bare.starts_with(blank)) bare.remove_prefix(blank.size());
          if (bare.ends_with(blank)) bare.remove_suffix(blank.size());
        }
      }
      if (bare.size() == field.size()) continue;
      field = std::string(bare);
      ++counts.trimmed;
    }
  }

  void read_moment() {
    const std::string& field = fields[*when];
    switch (read_time(field, time, unit)) {
      case TimeFault::none:
        if (time.seconds < 0) fail("time ", shown(field), " is negative, or a date before 1970");
        counts.dates += !is_number(field) || unit.digits;
        if (time.seconds <= kLargestTime) return;
        [[fallthrough]];
      case TimeFault::too_large:
        fail("time ", shown(field), " is out of range; the largest is ", kLargestTime, " s");
      case TimeFault::no_time:
        break;
    }
    fail("time '", shown(field), "' is neither ", unit.digits ? "of the form yyyymmdd" : "a number",
         " nor a date like 2016-02-05T12:30:00Z",
         line > 1 || headed()
             ? ""
             : "; if this line is a header, name its columns with --user-column, --item-column and --time-column");
  }

  void check_utf8(const std::string& word, const std::string& what) const {
    if (!is_clean_utf8(word))
      fail("the ", what, " is not UTF-8 text; if the file is Latin-1: iconv -f LATIN1 -t UTF-8 '", path.string(), "'");
  }
  void check_id(const std::string& id, const char* what) const {
    if (id.empty()) fail("an empty ", what, " id; --where '", what, " != \"\"' leaves such lines out");
    check_utf8(id, join(what, " id"));
    constexpr std::size_t kLongest = 1024;  // a prepared file stores all ids with the length of the longest
    if (id.size() > kLongest)
      fail("the ", what, " id '", shown(id), "' has ", id.size(), " bytes, at most ", kLongest,
           " are stored; is the separator right?");
  }

  bool next() {
    while (std::exchange(pending, false) || (more && next_line())) {
      if (!header.empty() && text == header) fail("the header of line 1 again");
      read_fields();
      bool kept = true;
      for (std::size_t c = 0; kept && c < conditions.size(); ++c) {
        const std::string& field = fields[conditions[c].at];
        const auto holds = conditions[c].holds(field);
        if (!holds)
          fail(conditions[c].column, " '", shown(field), "' cannot be compared with '", conditions[c].value,
               "': only one of them is a number (--where); an earlier condition can leave it out: --where '",
               conditions[c].column, " != ", shown(field), "'");
        kept = *holds;
        counts.left_out[c] += !kept;
      }
      if (!kept) continue;
      if (const std::size_t rating = 2; (format == "movielens" || format == "tsv4") && !is_number(fields[rating]))
        fail("rating '", shown(fields[rating]), "' is not a number; --columns names the columns of other files");
      check_id(fields[user], "user");
      check_id(fields[item], "item");
      if (when) read_moment();
      return true;
    }
    for (std::size_t c = 0; c < conditions.size(); ++c)
      if (!named[c]) fail("no object has a key '", conditions[c].column, "' (--where)");
    return false;
  }
};

InteractionFile::InteractionFile(const std::filesystem::path& path, const InteractionOptions& options) {
  check_positions(options.columns);
  require_usage(options.columns.empty() || (options.format == "auto" && options.user_column.empty() &&
                                            options.item_column.empty() && options.time_column.empty()),
                "option columns: it describes files without a header, so format, user-column, item-column and "
                "time-column do not apply");
  require_usage(options.user_column.empty() || options.user_column != options.item_column,
                "options user-column and item-column: both are '", options.user_column, "'");
  state_ = std::make_unique<State>(path, options);
  state_->unit = time_unit(options.time_unit);
  state_->open();
}
InteractionFile::~InteractionFile() = default;

bool InteractionFile::next() { return state_->next(); }
const std::string& InteractionFile::user() const { return state_->fields[state_->user]; }
const std::string& InteractionFile::item() const { return state_->fields[state_->item]; }
Moment InteractionFile::time() const { return state_->time; }
bool InteractionFile::has_time() const { return state_->when.has_value(); }
std::int64_t InteractionFile::line() const { return state_->line; }
const std::filesystem::path& InteractionFile::path() const { return state_->path; }
const std::string& InteractionFile::format() const { return state_->format; }
const InteractionFile::Counts& InteractionFile::counts() const { return state_->counts; }

std::string InteractionFile::reading() const {
  const State& s = *state_;
  const std::string separated = s.json() ? "" : join(", separated by ", name(s.separator));
  std::vector<std::string> unused = left_aside();
  constexpr std::size_t kShown = 12;
  if (unused.size() > kShown + 1) {
    const std::size_t more = unused.size() - kShown;
    unused.resize(kShown);
    unused.push_back(join("and ", more, " more"));
  }
  return join(s.format, separated, "; user = ", s.names[s.user], ", item = ", s.names[s.item],
              s.when ? ", time = " + s.names[*s.when] : ", no times",
              "; left aside: ", unused.empty() ? "nothing" : listed(unused));
}

std::vector<std::string> InteractionFile::left_aside() const {
  const State& s = *state_;
  std::vector<std::string> unused;
  for (std::size_t at = 0; at < s.names.size(); ++at) {
    const bool used = at == s.user || at == s.item || (s.when && at == *s.when) ||
                      std::ranges::any_of(s.conditions, [&](const Filter& c) { return c.at == at; });
    if (used) continue;
    const bool unnamed = s.names[at].empty() || s.names[at] == "-";
    unused.push_back(unnamed ? join("column ", at + 1) : s.names[at]);
  }
  return unused;
}

}  // namespace lockstep
