#include "lockstep/base/options.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/options_impl.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep {

Check at_least(double lowest) {
  return {">= " + exact(lowest), [lowest](long double v) { return v >= lowest; }};
}
Check between(double lowest, double highest) {
  const auto text = [](double limit) {  // 1000000, not 1e+06
    return limit == std::trunc(limit) && std::abs(limit) < 1e15 ? std::to_string(static_cast<std::int64_t>(limit))
                                                                : exact(limit);
  };
  return {text(lowest) + ".." + text(highest), [=](long double v) { return v >= lowest && v <= highest; }};
}

// ---- text <-> value

namespace {

[[noreturn]] void wrong(const std::string& what) { throw Error(Fault::usage, what); }

/// Reads the whole text as a finite number.
double number(std::string_view text) {
  double value = 0;
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || status == std::errc::invalid_argument || end != text.data() + text.size()) wrong("not a number");
  if (status != std::errc{}) wrong("out of range: the size of a number must be 0, or between 1e-307 and 1e308");
  if (!std::isfinite(value)) wrong("not a finite number");
  return value;
}

/// 1.5h | 1h30m | 2d | 500ms | 1:30:00 in units of `unit_s` seconds; a plain number is in this unit.
double duration(std::string_view text, double unit_s) {
  if (text.find(':') != std::string_view::npos) {
    const auto fields = split(text, ':');
    if (fields.size() > 3) wrong("not a duration like 1:30:00");
    double seconds = 0;
    for (const auto& field : fields) seconds = seconds * 60 + number(field);
    return seconds / unit_s;
  }
  const std::string_view whole = text;
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
  if (text.find_first_of("smhd") == std::string_view::npos) return number(text);
  double seconds = 0;
  while (!text.empty()) {
    const auto digits = std::min(text.find_first_of("smhd"), text.size());
    const auto after = std::min(text.find_first_not_of("smhd", digits), text.size());
    const auto word = text.substr(digits, after - digits);
    const auto unit =
        std::find_if(std::begin(kUnits), std::end(kUnits), [&](const auto& u) { return u.first == word; });
    if (unit == std::end(kUnits) || whole.find_first_not_of("+-0123456789.smhd") != std::string_view::npos)
      wrong("not a duration like 90, 1.5h, 1h30m, 2d or 1:30:00");
    seconds += number(text.substr(0, digits)) * unit->second;
    text.remove_prefix(after);
  }
  return seconds / unit_s;
}

/// 4096 | 4KiB | 4K (= 4096) | 4kB (= 4000) -> bytes.
double size(std::string_view text) {
  const auto digits = text.find_first_not_of("+-0123456789.eE ");
  if (digits == std::string_view::npos) return number(text);
  constexpr std::string_view kPrefixes = "kmgt";
  std::string word(text.substr(digits));
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto power = kPrefixes.find(word.front());
  const std::string rest = word.substr(1);
  if (word == "b") return number(trim(text.substr(0, digits)));
  if (power == std::string_view::npos || (!rest.empty() && rest != "b" && rest != "ib"))
    wrong("not a size like 4096, 4KiB or 4MB");
  return number(trim(text.substr(0, digits))) * std::pow(rest == "b" ? 1000.0 : 1024.0, static_cast<double>(power + 1));
}

template <class T>
T integer(std::string_view text, double (*read)(std::string_view)) {
  std::string_view digits = text;
  if (digits.starts_with('+')) digits.remove_prefix(1);
  T plain = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), plain);
  if (status == std::errc{} && end == digits.data() + digits.size()) return plain;
  // Not in plain digits (1e6, 4KiB), or out of range.
  const double value = read(text);
  if (value != std::floor(value)) wrong("must be a whole number");
  if (value < static_cast<double>(std::numeric_limits<T>::lowest()))
    wrong(join("must be at least ", std::numeric_limits<T>::lowest()));
  if (value >= std::ldexp(1.0, std::numeric_limits<T>::digits))
    wrong(join("must be at most ", std::numeric_limits<T>::max()));
  return static_cast<T>(value);
}

double (*reader(const std::string& unit))(std::string_view) {
  if (unit == "s") return [](std::string_view text) { return duration(text, 1); };
  if (unit == "min") return [](std::string_view text) { return duration(text, 60); };
  if (unit == "h") return [](std::string_view text) { return duration(text, 3600); };
  return unit == "bytes" ? size : number;
}

/// Splits at commas; `\,` and `\\` escape a comma and a backslash.
std::vector<std::string> list(std::string_view text) {
  std::vector<std::string> items;
  if (trim(text).empty()) return items;
  std::string item;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || text[i] == ',') {
      items.push_back(trim(item));
      if (items.back().empty()) wrong("an empty element between commas");
      item.clear();
    } else {
      if (text[i] == '\\' && i + 1 < text.size()) ++i;
      item += text[i];
    }
  }
  return items;
}

template <class T>
const char* kind_of() {
  if constexpr (std::same_as<T, bool>) return "bool";
  if constexpr (std::integral<T>) return "integer";
  if constexpr (std::same_as<T, double>) return "number";
  if constexpr (std::same_as<T, std::string>) return "text";
  return "list";
}

/// Reads a text as one of the types that insert() takes.
template <class T>
T read_value(const Option::Spec& spec, const std::string& text) {
  [[maybe_unused]] const auto read = reader(spec.unit_name);
  if constexpr (std::same_as<T, bool>) {
    for (const char* yes : {"true", "yes", "on", "1"})
      if (truth(text) == yes) return true;
    for (const char* no : {"false", "no", "off", "0"})
      if (truth(text) == no) return false;
    wrong("must be true or false");
  } else if constexpr (std::integral<T>) {
    return integer<T>(text, read);
  } else if constexpr (std::same_as<T, double>) {
    return read(text);
  } else if constexpr (std::same_as<T, std::vector<std::string>>) {
    return list(text);
  } else if constexpr (!std::same_as<T, std::string>) {
    T values;
    std::string_view inner = text;  // of [20, 40], as other programs write lists of numbers
    if (inner.starts_with('[') && inner.ends_with(']')) inner = inner.substr(1, inner.size() - 2);
    for (const auto& item : list(inner)) values.push_back(read_value<typename T::value_type>(spec, item));
    return values;
  } else {
    if (spec.choices.empty() || std::ranges::find(spec.choices, text) != spec.choices.end()) return text;
    std::string all;
    for (std::size_t i = 0; i < spec.choices.size(); ++i)
      all += (i == 0 ? "" : i + 1 == spec.choices.size() ? " or " : ", ") + spec.choices[i];
    const std::string near = nearest(text, spec.choices);
    wrong("must be " + all + (near.empty() ? "" : "; did you mean " + near + "?"));
  }
}

std::string write_value(bool value) { return value ? "true" : "false"; }
std::string write_value(double value) { return exact(value); }
template <std::integral T>
std::string write_value(T value) {
  return std::to_string(value);
}
std::string write_value(const std::string& value) { return value; }
template <class T>
std::string write_value(const std::vector<T>& values) {
  std::string text;
  for (const auto& value : values) {
    if (!text.empty()) text += ',';
    for (const char c : write_value(value)) {
      if (c == ',' || c == '\\') text += '\\';
      text += c;
    }
  }
  return text;
}

template <class T>
void check_value(const Option::Spec& spec, const T& value) {
  if (!spec.rule.holds) return;
  if constexpr (std::integral<T> || std::floating_point<T>) {
    if (!spec.rule.holds(static_cast<long double>(value))) wrong("must be " + spec.rule.rule);
  } else if constexpr (!std::same_as<T, std::string> && !std::same_as<T, std::vector<std::string>>) {
    for (const auto v : value) check_value(spec, v);
  }
}

}  // namespace

// ---- the table

Option::Option(std::unique_ptr<Spec> spec) : spec_(std::move(spec)) {}
Option::~Option() = default;
Option& Option::unit(std::string name) {
  spec_->unit_name = std::move(name);
  return *this;
}
Option& Option::value_alias(std::string word, std::string value) {
  spec_->help += join("; ", word, " stands for ", value);
  spec_->synonyms.emplace(std::move(word), std::move(value));
  return *this;
}
Option& Option::required() {
  spec_->needed = true;
  return *this;
}
Option& Option::may_change() {
  spec_->changeable = true;
  return *this;
}
Option& Option::instead_of(std::string other) {
  spec_->other = std::move(other);
  return *this;
}
Option& Option::settled_by_first_start(std::string value) {
  spec_->open = std::move(value);
  return *this;
}
Option& Option::decides_others() {
  spec_->decides = true;
  return *this;
}

void Option::Spec::reject(const std::string& text, const std::string& from, const std::string& what) const {
  const bool quoted = (kind == "text" || kind == "list") && choices.empty();
  throw Error(Fault::usage, join("option ", key, " = ", quoted ? "'" : "", text, quoted ? "'" : "",
                                 from == "default" || from == "command line" ? "" : " (" + from + ")", ": ", what));
}

void Option::Spec::set(const std::string& value, const std::string& from) {
  try {
    store(meant(value));
  } catch (const Error& e) {
    reject(value, from, e.what());
  }
  origin = from;
}

Options::Options(std::string program, std::string summary, std::string description) : impl_(std::make_unique<Impl>()) {
  impl_->program = std::move(program);
  impl_->summary = std::move(summary);
  impl_->description = std::move(description);
}
Options::Options(Options&&) noexcept = default;
Options& Options::operator=(Options&&) noexcept = default;
Options::~Options() = default;

void Options::section(std::string prefix, std::string title, std::string text) {
  impl_->sections.push_back({std::move(prefix), std::move(title), std::move(text)});
}
void Options::may_change(const std::string& section, const std::set<std::string>& except) {
  for (const auto& o : impl_->options)
    if (o->spec_->section() == section && !except.contains(o->spec_->key)) o->may_change();
}

template <class T>
Option& Options::insert(std::string names, Target<T> target, T initial, Check check, std::string help) {
  auto spec = std::make_unique<Option::Spec>();
  Option::Spec* row = spec.get();
  if (const std::size_t end = names.find('='); end != std::string::npos) {
    row->value = names.substr(end + 1);
    names.resize(end);
  }
  const std::vector<std::string> all = split(names, ',');
  require(!all.empty(), "adding option '", names, "': it needs a name");
  row->key = all.front();
  const std::string& key = row->key;
  row->kind = kind_of<T>();
  row->help = std::move(help);
  row->rule = std::move(check);
  row->initial = write_value(initial);
  row->canonical = [row](const std::string& text) { return write_value(read_value<T>(*row, row->meant(text))); };
  row->store = [row, target](const std::string& text) {
    T value = read_value<T>(*row, text);
    check_value(*row, value);
    target.set(std::move(value));
  };
  row->reset = [row, target] {
    target.set(read_value<T>(*row, row->initial));
    row->origin = "default";
  };
  row->text = [target] { return write_value(target.get()); };
  target.set(std::move(initial));
  impl_->name_it(key, *row);
  impl_->options.push_back(std::unique_ptr<Option>(new Option(std::move(spec))));
  for (std::size_t i = 1; i < all.size(); ++i) alias(key, all[i]);
  return *impl_->options.back();
}
template Option& Options::insert(std::string, Target<bool>, bool, Check, std::string);
template Option& Options::insert(std::string, Target<int>, int, Check, std::string);
template Option& Options::insert(std::string, Target<std::int64_t>, std::int64_t, Check, std::string);
template Option& Options::insert(std::string, Target<std::uint64_t>, std::uint64_t, Check, std::string);
template Option& Options::insert(std::string, Target<double>, double, Check, std::string);
template Option& Options::insert(std::string, Target<std::string>, std::string, Check, std::string);
template Option& Options::insert(std::string, Target<std::vector<std::string>>, std::vector<std::string>, Check,
                                 std::string);
template Option& Options::insert(std::string, Target<std::vector<double>>, std::vector<double>, Check, std::string);
template Option& Options::insert(std::string, Target<std::vector<std::int64_t>>, std::vector<std::int64_t>, Check,
                                 std::string);

Option& Options::choice(std::string names, Target<std::string> target, std::string initial,
                        std::vector<std::string> values, std::string help) {
  require(std::find(values.begin(), values.end(), initial) != values.end(), "adding option ", names, ": the default '",
          initial, "' is not one of its values");
  Option& option =
      insert<std::string>(std::move(names), std::move(target), std::move(initial), anything, std::move(help));
  option.spec_->choices = std::move(values);
  return option;
}

void Options::set_default(const std::string& key, const std::string& value) {
  Option::Spec& row = impl_->at(key);
  try {
    row.initial = row.canonical(value);
    row.store(value);
  } catch (const Error& e) {
    require(false, "setting the default of option ", key, " of ", impl_->program, " to ", value, ": ", e.what());
  }
}

void Options::set_defaults(const std::vector<std::string>& assignments) {
  for (const std::string& one : assignments) {
    const std::size_t at = one.find(" = ");
    set_default(one.substr(0, at), one.substr(at + 3));
  }
}

void Options::alias(const std::string& key, std::string other) {
  Option::Spec& row = impl_->at(key);
  impl_->name_it(other, row);
  row.aliases.push_back(std::move(other));
}

void Options::word(const std::string& names, bool takes_value, std::string help,
                   std::function<Reply(const std::string& value)> reply) {
  impl_->words.push_back(
      std::make_unique<Impl::Word>(Impl::Word{split(names, ','), takes_value, std::move(help), std::move(reply)}));
}

const Options::Impl::Word* Options::Impl::find_word(const std::string& name) const {
  for (const auto& word : words)
    if (std::ranges::find(word->names, name) != word->names.end()) return word.get();
  return nullptr;
}

void Options::shorthand(const std::string& name, const std::string& key, const std::string& value) {
  Option::Spec& row = impl_->at(key);
  row.help += join("; --", name, " stands for ", value);
  const bool fresh =
      impl_->find(name) == nullptr && impl_->shorthands.emplace(fold(name), std::pair(&row, value)).second;
  require(fresh, "adding option ", name, " to ", impl_->program, ": the name is already in use");
}

void Options::positional(std::string name, std::vector<std::string>* target, std::string help, std::size_t least,
                         std::size_t most) {
  require(impl_->positionals.empty() || impl_->positionals.back().least == impl_->positionals.back().most,
          "adding positional '", name, "': the one before it accepts any number of words");
  impl_->positionals.push_back({std::move(name), std::move(help), target, least, most});
}

void Options::describe(const std::string& paragraph) {
  impl_->description += (impl_->description.empty() ? "" : "\n\n") + paragraph;
}

void Options::list_only(std::vector<std::string> keys) { impl_->lists.push_back(std::move(keys)); }
void Options::expert(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    Option::Spec* found = impl_->find(key);
    require(found != nullptr, "marking the key ", key, ": there is no such key");
    found->expert = true;
  }
}

void Options::explain_unknown(std::function<std::string(const std::string& name)> explain) {
  impl_->explain = std::move(explain);
}
void Options::translate_entries(std::function<void(std::vector<IniEntry>&, const std::string& source)> translate) {
  impl_->translate = std::move(translate);
}
bool Options::knows(const std::string& name) const {
  return impl_->find(name) != nullptr || impl_->find_word(name) != nullptr;
}

void Options::example(std::string command, std::string what) {
  impl_->examples.push_back({std::move(command), std::move(what)});
}

Option::Spec* Options::Impl::find(const std::string& name) const {
  const auto found = names.find(fold(name));
  return found == names.end() ? nullptr : found->second;
}

Option::Spec& Options::Impl::at(const std::string& key) const {
  Option::Spec* row = find(key);
  require(row != nullptr, "looking up option ", key, ": ", program, " has no such option");
  return *row;
}

void Options::Impl::name_it(const std::string& name, Option::Spec& spec) {
  require(name != "help" && name != "config" && name != "set", "adding option ", name, " to ", program,
          ": the name is reserved for every program");
  const bool fresh = names.emplace(fold(name), &spec).second;
  require(fresh, "adding option ", name, " to ", program, ": the name is already in use");
}

bool Options::Impl::has_configuration() const {
  return std::any_of(options.begin(), options.end(), [](const auto& o) { return o->spec_->configuration(); });
}

bool Options::Impl::listed(const Option::Spec& row) const {
  return !row.configuration() || std::ranges::all_of(lists, [&](const std::vector<std::string>& keys) {
    return std::ranges::any_of(keys,
                               [&](const std::string& key) { return key == row.key || key == row.section() + ".*"; });
  });
}

std::vector<std::pair<Options::Impl::Section, std::vector<const Option::Spec*>>> Options::Impl::grouped(
    bool unlisted) const {
  std::vector<std::pair<Section, std::vector<const Option::Spec*>>> groups;
  groups.push_back({{"", "Options", ""}, {}});
  for (const auto& section : sections) groups.push_back({section, {}});
  for (const auto& option : options) {
    const Option::Spec& row = *option->spec_;
    if (!unlisted && !listed(row)) continue;
    const std::string prefix = row.section();
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first.prefix == prefix; });
    if (group == groups.end()) group = groups.insert(groups.end(), {{prefix, prefix, ""}, {}});
    group->second.push_back(&row);
  }
  std::erase_if(groups, [](const auto& g) { return g.second.empty(); });
  return groups;
}

// ---- queries

bool Options::lists(const std::string& key) const { return impl_->listed(impl_->at(key)); }
bool Options::given(const std::string& key) const { return impl_->at(key).origin != "default"; }
std::string Options::origin(const std::string& key) const { return impl_->at(key).origin; }
std::string Options::accepted(const std::string& key) const { return impl_->at(key).placeholder(); }
std::string Options::value(const std::string& key) const { return impl_->at(key).text(); }
std::string Options::initial(const std::string& key) const { return impl_->at(key).initial; }

std::vector<std::string> Options::keys() const {
  std::vector<std::string> keys;
  for (const auto& option : impl_->options)
    if (option->spec_->configuration()) keys.push_back(option->spec_->key);
  return keys;
}

void Options::reject(const std::string& key, const std::string& what) const {
  const Option::Spec& row = impl_->at(key);
  row.reject(row.text(), row.origin, what);
}

std::vector<std::string> Options::differences(std::string_view other_ini, const std::string& source) const {
  std::vector<std::string> found;
  std::map<const Option::Spec*, std::string> theirs;
  for (const auto& entry : impl_->entries_of(other_ini, source)) {
    const Option::Spec* row = impl_->find(entry.key);
    if (row == nullptr || !row->configuration())
      found.push_back(join(entry.key, ": ", entry.value, " there, unknown here"));
    else
      theirs[row] = entry.value;
  }
  const auto shown = [](const std::string& text) { return text.empty() ? std::string("nothing") : text; };
  for (const auto& option : impl_->options) {
    const Option::Spec& row = *option->spec_;
    if (!row.configuration() || row.changeable || row.open == row.text()) continue;
    const auto their = theirs.find(&row);
    std::string text = their == theirs.end() ? row.initial : their->second;
    try {
      text = row.canonical(text);
    } catch (const Error&) {
      // The value is not valid here: report it as a difference, with its original text.
    }
    if (text == row.text()) continue;
    found.push_back(join(row.key, ": ", shown(text), " there, ", shown(row.text()), " here"));
    if (row.decides) return {found.back()};
  }
  return found;
}

}  // namespace lockstep
