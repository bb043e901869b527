#include "lockstep/models/weights.hpp"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "lockstep/base/error.hpp"
#include "lockstep/base/json.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep {

namespace {

using Json = nlohmann::json;

/// The number that stands for # in a name of this pattern ("" if the pattern has none), or nothing.
std::optional<std::string> match(std::string_view pattern, std::string_view name) {
  const std::size_t hash = pattern.find('#');
  if (hash == std::string_view::npos) return pattern == name ? std::optional<std::string>("") : std::nullopt;
  const std::string_view tail = pattern.substr(hash + 1);
  if (name.size() <= hash + tail.size() || name.substr(0, hash) != pattern.substr(0, hash) || !name.ends_with(tail))
    return std::nullopt;
  const std::string_view number = name.substr(hash, name.size() - hash - tail.size());
  return std::ranges::all_of(number, [](unsigned char c) { return std::isdigit(c) != 0; })
             ? std::optional<std::string>(number)
             : std::nullopt;
}
std::string filled(std::string_view pattern, const std::string& number) {
  std::string out(pattern);
  if (const std::size_t hash = out.find('#'); hash != std::string::npos) out.replace(hash, 1, number);
  return out;
}

/// errors  data: a name twice
void sort(NamedArrays& arrays) {
  std::ranges::sort(arrays.arrays, {}, &NamedArray::name);
  const auto twice = std::ranges::adjacent_find(arrays.arrays, {}, &NamedArray::name);
  require_data(twice == arrays.arrays.end(), "the arrays of a network: '",
               twice == arrays.arrays.end() ? "" : twice->name, "' occurs twice, under different public names");
}

std::vector<std::int64_t> extents(const Shape& shape) {
  std::vector<std::int64_t> out;
  for (int axis = 0; axis < shape.rank(); ++axis) out.push_back(shape[axis]);
  return out;
}

/// Rows [part * n / parts, (part + 1) * n / parts) of an array of n rows.
NamedArray rows_of(const NamedArray& whole, int part, int parts) {
  NamedArray out;
  out.shape = whole.shape;
  out.shape[0] /= parts;
  out.stored = whole.stored;
  std::visit(
      [&]<class T>(const std::vector<T>& values) {
        const auto size = std::ssize(values) / parts;
        out.values = std::vector<T>(values.begin() + part * size, values.begin() + (part + 1) * size);
      },
      whole.values);
  return out;
}

/// Appends the rows of `more`. Returns whether they fit.
bool append_rows(NamedArray& whole, const NamedArray& more) {
  if (whole.shape.empty() || whole.shape.size() != more.shape.size() || whole.values.index() != more.values.index() ||
      !std::equal(whole.shape.begin() + 1, whole.shape.end(), more.shape.begin() + 1))
    return false;
  whole.shape[0] += more.shape[0];
  std::visit(
      [&]<class T>(std::vector<T>& values) {
        const auto& added = std::get<std::vector<T>>(more.values);
        values.insert(values.end(), added.begin(), added.end());
      },
      whole.values);
  return true;
}

void load(ParamStore& params, const NamedArrays& arrays, const std::string& prefix, NameRules rules,
          const std::string& what) {
  std::vector<std::string> missing, misshapen, unknown;
  std::set<std::string> known;
  for (const Param& param : params.all()) {
    if (!param.name.starts_with(prefix)) continue;
    const std::string name = param.name.substr(prefix.size());
    const NamedArray* found = arrays.find(name);
    known.insert(name);
    const bool computed = std::ranges::any_of(rules, [&](const NameRule& rule) {
      return std::string_view(rule.theirs).empty() && match(rule.ours, name).has_value();
    });
    if (found == nullptr && !computed)
      missing.push_back(join(name, " ", shape_text(extents(param.shape)), ": missing"));
    else if (found != nullptr && found->shape != extents(param.shape))
      misshapen.push_back(join(name, " ", shape_text(extents(param.shape)), ": has shape ", shape_text(found->shape)));
  }
  for (const NamedArray& array : arrays.arrays)
    if (!known.contains(array.name))
      unknown.push_back(join(array.name, " ", shape_text(array.shape), ": not in this network"));
  std::string list;
  for (const std::vector<std::string>& lines : {misshapen, missing, unknown}) {
    constexpr std::size_t kShown = 100;
    for (std::size_t i = 0; i < std::min(lines.size(), kShown); ++i) list += "\n  " + lines[i];
    if (lines.size() > kShown) list += join("\n  and ", lines.size() - kShown, " more");
  }
  require_data(list.empty(), what,
               ": its arrays are not those of this network, which has the shapes given first:", list);
  for (Param& param : params.all())
    if (param.name.starts_with(prefix))
      if (const NamedArray* found = arrays.find(param.name.substr(prefix.size()))) assign(param, *found);
}

}  // namespace

NamedArray array_of(const Param& param) {
  NamedArray array = {.name = param.name, .shape = extents(param.shape), .values = {}};
  const HostView host(param.value);
  visit_float(param.value.dtype(), [&]<class T>() {
    const std::span<const T> values = host->span<T>();
    array.values = std::vector<T>(values.begin(), values.end());
  });
  return array;
}

NamedArrays arrays_of(const ParamStore& params) {
  NamedArrays out;
  for (const Param& param : params.all()) out.arrays.push_back(array_of(param));
  sort(out);
  return out;
}

void assign(Param& param, const NamedArray& array) {
  const HostView host(param.value, HostView::Access::write);
  visit_float(param.value.dtype(), [&]<class T>() {
    T* to = host->data<T>();
    std::visit(
        [&](const auto& values) { std::ranges::transform(values, to, [](auto v) { return static_cast<T>(v); }); },
        array.values);
  });
}

NamedArrays to_public(NamedArrays arrays, NameRules rules) {
  NamedArrays out;
  out.metadata = std::move(arrays.metadata);
  std::map<std::string, std::vector<NamedArray>> parts;
  for (NamedArray& array : arrays.arrays) {
    bool kept = true;
    NamedArray* part = nullptr;  // of a larger array
    for (const NameRule& rule : rules) {
      const auto number = rule.use == NameRule::Use::both ? match(rule.ours, array.name) : std::nullopt;
      if (!number) continue;
      kept = !std::string_view(rule.theirs).empty();
      if (!kept) break;
      array.name = filled(rule.theirs, *number);
      if (rule.parts > 1) {
        auto& group = parts[array.name];
        group.resize(rule.parts);
        part = &group[rule.part];
      }
      break;
    }
    if (kept) (part != nullptr ? *part : out.arrays.emplace_back()) = std::move(array);
  }
  for (auto& [name, group] : parts) {
    for (std::size_t i = 1; i < group.size(); ++i)
      require(append_rows(group[0], group[i]), "exporting '", name, "': its parts have different shapes");
    out.arrays.push_back(std::move(group[0]));
  }
  sort(out);
  return out;
}

NamedArrays from_public(NamedArrays arrays, NameRules rules) {
  NamedArrays out;
  out.metadata = std::move(arrays.metadata);
  for (NamedArray& array : arrays.arrays) {
    bool taken = false;
    for (const NameRule& rule : rules) {
      const auto number = match(rule.theirs, array.name);
      if (!number || std::string_view(rule.theirs).empty()) continue;
      if (rule.parts > 1) {
        if (array.shape.empty() || array.shape[0] % rule.parts != 0) continue;
        out.arrays.push_back(rows_of(array, rule.part, rule.parts));
        out.arrays.back().name = filled(rule.ours, *number);
        taken = true;
      } else {
        array.name = filled(rule.ours, *number);
        break;
      }
    }
    if (!taken) out.arrays.push_back(std::move(array));
  }
  sort(out);
  return out;
}

NamedArrays without_prefixes(NamedArrays arrays) {
  for (NamedArray& array : arrays.arrays)
    for (bool again = true; again;) {
      again = false;
      for (const std::string_view prefix : {"module.", "_orig_mod.", "model.inner."}) {
        if (!array.name.starts_with(prefix)) continue;
        array.name.erase(0, prefix.size());
        again = true;
      }
    }
  sort(arrays);
  return arrays;
}

void load_arrays(ParamStore& params, const NamedArrays& arrays, NameRules rules, const std::string& what) {
  load(params, arrays, "", rules, what);
}

void load_arrays_below(const std::string& prefix, ParamStore& params, const NamedArrays& arrays,
                       const std::string& what) {
  load(params, arrays, prefix, {}, what);
}

void require_exported(const WeightMetadata& metadata, const std::string& kind, const std::string& what) {
  const auto entry = [&](const char* key) { return metadata.contains(key) ? metadata.at(key) : std::string(); };
  require_data(entry(kFormatEntry) == kWeightsFormat, what,
               ": its metadata do not describe a network; write it with lockstep export, or use lockstep import");
  require_data(entry(kKindEntry) == kind, what, ": it holds a network of kind ", entry(kKindEntry), ", expected ",
               kind);
}

template <class T>
void TextFields::operator()(const std::string& key, T& field) {
  if (to_ != nullptr) {
    if constexpr (std::is_same_v<T, std::string>)
      (*to_)[key] = field;
    else
      (*to_)[key] = json_text(Json(field));
    return;
  }
  const auto found = from_->find(key);
  require_data(found != from_->end(), what_, ": its metadata have no entry '", key, "'");
  if constexpr (std::is_same_v<T, std::string>) {
    field = found->second;
  } else {
    const Json value = parse_json(found->second);
    try {
      field = value.get<T>();
    } catch (const Json::exception&) {
      refuse(key, found->second);
    }
    constexpr std::int64_t kLargest = std::int64_t{1} << 31;
    if constexpr (std::is_same_v<T, std::int64_t>)
      if (!value.is_number_integer() || field < -kLargest || field > kLargest) refuse(key, found->second);
  }
}
template void TextFields::operator()(const std::string&, bool&);
template void TextFields::operator()(const std::string&, std::int64_t&);
template void TextFields::operator()(const std::string&, double&);
template void TextFields::operator()(const std::string&, std::string&);
template void TextFields::operator()(const std::string&, std::vector<std::int64_t>&);
template void TextFields::operator()(const std::string&, std::vector<double>&);
template void TextFields::operator()(const std::string&, std::vector<std::string>&);

void TextFields::refuse(const std::string& key, const std::string& text) const {
  throw Error(Fault::data, join(what_, ": its metadata entry ", key, " = '", text.substr(0, 100),
                                "' has no meaning for this program; it is damaged or of a newer version"));
}

void require_values(const NamedArrays& arrays, std::int64_t expected, const std::string& what) {
  std::int64_t count = 0;
  for (const NamedArray& array : arrays.arrays) count += static_cast<std::int64_t>(array.count());
  require_data(count == expected, what, ": it holds ", count, " values, the network that its metadata describe has ",
               expected);
}

}  // namespace lockstep
