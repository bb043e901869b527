#include "lockstep/prep/netcdf.hpp"

#include <netcdf.h>
#include <netcdf_filter.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>

#include "lockstep/base/error.hpp"
#include "lockstep/base/number.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/io/h5.hpp"

namespace lockstep::prep {

namespace fs = std::filesystem;

struct NcFile::Place {
  int group = 0, variable = 0;
};

namespace {
/// errors  data, naming what was being done
void check(int status, const std::string& doing) { require_data(status == NC_NOERR, doing, ": ", nc_strerror(status)); }

bool is_number(nc_type type) { return type >= NC_BYTE && type <= NC_UINT64 && type != NC_CHAR; }

std::string quoted(const std::string& variable, const fs::path& path) {
  return "'" + variable + "' of '" + path.string() + "'";
}

/// The number that a text is, such as " 0.005 ".
std::optional<double> number_in(std::string_view text) {
  const std::string word = trim(text);
  return lockstep::number_in<double>(std::string_view(word).substr(word.starts_with('+')));
}

std::optional<std::string> text_of(int group, int variable, const char* name) {
  nc_type type = NC_NAT;
  std::size_t length = 0;
  if (nc_inq_att(group, variable, name, &type, &length) != NC_NOERR) return {};
  if (type == NC_CHAR) {
    std::string text(length, '\0');
    if (nc_get_att_text(group, variable, name, text.data()) != NC_NOERR) return {};
    while (!text.empty() && text.back() == '\0') text.pop_back();
    return text;
  }
  if (type == NC_STRING && length == 1) {
    char* row = nullptr;
    if (nc_get_att_string(group, variable, name, &row) != NC_NOERR) return {};
    std::string text = row != nullptr ? row : "";
    nc_free_string(1, &row);
    return text;
  }
  return {};
}

/// The numbers of an attribute; none if the attribute is missing.
struct Numbers {
  std::vector<double> values;
  nc_type type = NC_NAT;
  bool real() const { return type == NC_FLOAT || type == NC_DOUBLE; }
};
/// Text such as "0.005" or "-5, 40" counts as numbers of type double.
/// doing  "reading 'sst' of 'a.nc'"; errors  data: text of another kind, which would silently leave values as packed
Numbers numbers_of(int group, int variable, const char* name, const std::string& doing) {
  Numbers out;
  std::size_t length = 0;
  if (nc_inq_att(group, variable, name, &out.type, &length) != NC_NOERR) return {};
  if (out.type != NC_CHAR && out.type <= NC_UINT64) {
    out.values.resize(length);
    if (nc_get_att_double(group, variable, name, out.values.data()) != NC_NOERR) return {};
    return out;
  }
  out.type = NC_DOUBLE;
  const auto text = text_of(group, variable, name);
  std::string numbers = text.value_or("");
  std::ranges::replace(numbers, ',', ' ');
  for (const auto& word : split(numbers, ' ')) {
    if (trim(word).empty()) continue;
    const auto value = number_in(word);
    require_data(value.has_value(), doing, ": its attribute ", name, " is the text '", *text,
                 "', not a number; correct or remove it, for example with ncatted");
    out.values.push_back(*value);
  }
  return out;
}

/// The format's fill value for a variable without the attribute. Bytes have none: every value may be data.
std::optional<double> default_fill(nc_type type) {
  constexpr std::pair<nc_type, double> kFills[] = {{NC_SHORT, NC_FILL_SHORT},
                                                   {NC_USHORT, NC_FILL_USHORT},
                                                   {NC_INT, NC_FILL_INT},
                                                   {NC_UINT, NC_FILL_UINT},
                                                   {NC_INT64, static_cast<double>(NC_FILL_INT64)},
                                                   {NC_UINT64, static_cast<double>(NC_FILL_UINT64)},
                                                   {NC_FLOAT, static_cast<double>(NC_FILL_FLOAT)},
                                                   {NC_DOUBLE, NC_FILL_DOUBLE}};
  for (const auto& [known, fill] : kFills)
    if (known == type) return fill;
  return {};
}

/// Decodes stored values by the attributes of their variable.
class Decoder {
 public:
  Decoder(int group, int variable, nc_type type, const std::string& doing) : type_(type) {
    std::string mark = text_of(group, variable, "_Unsigned").value_or("");
    std::ranges::transform(mark, mark.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    unsigned_ = mark == "true";
    signed_ = mark == "false";
    const auto attribute = [&](const char* name) { return numbers_of(group, variable, name, doing); };
    const auto one = [&](const char* name, double otherwise, Numbers& numbers) {
      numbers = attribute(name);
      require_data(numbers.values.size() <= 1, doing, ": its attribute ", name, " has ", numbers.values.size(),
                   " numbers, but one unpacks the variable; correct it, for example with ncatted");
      return numbers.values.empty() ? otherwise : numbers.values.front();
    };
    Numbers scale, offset;
    scale_ = one("scale_factor", 1, scale);
    offset_ = one("add_offset", 0, offset);
    const bool integers = type != NC_FLOAT && type != NC_DOUBLE;
    const bool unpacks = integers && (scale.real() || offset.real());
    const Numbers fill = attribute("_FillValue"), other = attribute("missing_value");
    for (const Numbers& missing : {fill, other})
      for (const double value : missing.values) {
        missing_.push_back(stored(value));
        // A real number on packed integers may be meant in unpacked units.
        if (unpacks && missing.real()) missing_unpacked_.push_back(value);
        if (const auto f32 = static_cast<float>(value); type == NC_DOUBLE && static_cast<double>(f32) == value)
          missing_f32_.push_back(f32);
      }
    // The library fills what is never written, whatever else missing_value marks.
    if (const auto written = default_fill(type); written && fill.values.empty()) missing_.push_back(stored(*written));
    const auto bound = [&](const Numbers& found, std::size_t at, double sign) {
      if (found.values.size() <= at) return;
      auto& range = unpacks && found.real() ? range_unpacked_ : range_;
      (sign < 0 ? range.first : range.second) = unpacks && found.real() ? found.values[at] : stored(found.values[at]);
    };
    const Numbers range = attribute("valid_range");
    bound(range.values.size() == 2 ? range : attribute("valid_min"), 0, -1);
    bound(range.values.size() == 2 ? range : attribute("valid_max"), range.values.size() == 2 ? 1 : 0, 1);
  }

  double operator()(double raw) const {
    const double value = stored(raw), unpacked = value * scale_ + offset_;
    const auto is = [](const auto& all, auto one) { return std::ranges::find(all, one) != all.end(); };
    const auto outside = [](const std::pair<double, double>& range, double one) {
      return one < range.first || one > range.second;
    };
    if (is(missing_, value) || is(missing_unpacked_, unpacked) || is(missing_f32_, static_cast<float>(value)) ||
        outside(range_, value) || outside(range_unpacked_, unpacked))
      return std::numeric_limits<double>::quiet_NaN();
    return scale_ != 1 || offset_ != 0 ? unpacked : value;
  }

 private:
  /// A number as a variable of this type holds it: rounded to f32, or read as unsigned or signed against its type.
  double stored(double value) const {
    if (type_ == NC_FLOAT) return static_cast<double>(static_cast<float>(value));
    const double values = type_ == NC_BYTE || type_ == NC_UBYTE     ? 0x1p8
                          : type_ == NC_SHORT || type_ == NC_USHORT ? 0x1p16
                          : type_ == NC_INT || type_ == NC_UINT     ? 0x1p32
                                                                    : 0;
    if (unsigned_ && value < 0) return value + values;
    if (signed_ && values > 0 && value >= values / 2) return value - values;
    return value;
  }

  nc_type type_;
  bool unsigned_ = false, signed_ = false;
  double scale_ = 1, offset_ = 0;
  std::vector<double> missing_, missing_unpacked_;
  std::vector<float> missing_f32_;  ///< of doubles, where the attribute holds a number that was rounded to f32
  std::pair<double, double> range_{-std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()},
      range_unpacked_ = range_;
};

/// Names of the variables of a group and of its subgroups.
void collect(int group, const std::string& prefix, std::vector<std::string>& names) {
  int n = 0;
  if (nc_inq_varids(group, &n, nullptr) == NC_NOERR && n > 0) {
    std::vector<int> ids(n);
    nc_inq_varids(group, nullptr, ids.data());
    for (const int id : ids) {
      std::array<char, NC_MAX_NAME + 1> name{};
      if (nc_inq_varname(group, id, name.data()) == NC_NOERR) names.push_back(prefix + name.data());
    }
  }
  n = 0;
  if (nc_inq_grps(group, &n, nullptr) != NC_NOERR || n == 0) return;
  std::vector<int> ids(n);
  nc_inq_grps(group, nullptr, ids.data());
  for (const int id : ids) {
    std::array<char, NC_MAX_NAME + 1> name{};
    if (nc_inq_grpname(id, name.data()) == NC_NOERR) collect(id, prefix + name.data() + "/", names);
  }
}
}  // namespace

NcFile NcFile::open(const fs::path& path) {
  std::error_code error;
  require_usage(fs::exists(path, error), "opening '", path.string(), "': no such file");
  require_usage(fs::is_regular_file(path, error), "opening '", path.string(), "': not a regular file");
  if (const auto needed = classic_size(path)) {
    const auto size = static_cast<std::int64_t>(fs::file_size(path, error));
    require_data(size >= *needed, "opening '", path.string(), "': it is truncated: its header promises ", *needed,
                 " bytes, it has ", size);
  }
  int id = -1;
  const int status = nc_open(path.c_str(), NC_NOWRITE, &id);
  require_data(status == NC_NOERR, "opening '", path.string(), "' as NetCDF: ", nc_strerror(status),
               status == NC_EHDFERR ? "; it is truncated, damaged or locked by a writer" : "");
  return NcFile(path, id);
}

NcFile::NcFile(NcFile&& other) noexcept : path_(std::move(other.path_)), id_(other.id_) { other.id_ = -1; }
NcFile::~NcFile() {
  if (id_ >= 0) nc_close(id_);
}

NcFile::Place NcFile::find(const std::string& variable) const {
  const auto slash = variable.rfind('/');
  Place place{id_, -1};
  if (slash != std::string::npos && slash > 0) {
    const std::string group = (variable.front() == '/' ? "" : "/") + variable.substr(0, slash);
    if (nc_inq_grp_full_ncid(id_, group.c_str(), &place.group) != NC_NOERR) place.group = -1;
  }
  const std::string name = slash == std::string::npos ? variable : variable.substr(slash + 1);
  if (place.group < 0 || nc_inq_varid(place.group, name.c_str(), &place.variable) != NC_NOERR) place.variable = -1;
  return place;
}

bool NcFile::has(const std::string& variable) const { return find(variable).variable >= 0; }

std::vector<std::string> NcFile::variables() const {
  std::vector<std::string> names;
  collect(id_, "", names);
  return names;
}

std::string NcFile::suggestion(const std::string& variable) const {
  const auto names = variables();
  auto found = std::ranges::find_if(names, [&](const auto& name) { return name.ends_with("/" + variable); });
  const std::string near = found != names.end() ? *found : nearest(variable, names);
  return near.empty() ? "" : "; did you mean '" + near + "'?";
}

NcVariable NcFile::describe(const std::string& variable) const {
  const Place place = find(variable);
  if (place.variable < 0)
    throw Error(Fault::data,
                join("reading ", quoted(variable, path_), ": there is no such variable", suggestion(variable)));
  const std::string doing = "describing " + quoted(variable, path_);
  int axes = 0;
  check(nc_inq_varndims(place.group, place.variable, &axes), doing);
  std::vector<int> ids(axes);
  check(nc_inq_vardimid(place.group, place.variable, ids.data()), doing);
  NcVariable out;
  out.name = variable;
  for (const int id : ids) {
    std::array<char, NC_MAX_NAME + 1> name{};
    std::size_t length = 0;
    check(nc_inq_dim(place.group, id, name.data(), &length), doing);
    out.dims.emplace_back(name.data());
    out.shape.push_back(static_cast<std::int64_t>(length));
  }
  nc_type type = NC_NAT;
  check(nc_inq_vartype(place.group, place.variable, &type), doing);
  out.numeric = is_number(type);
  out.units = text_of(place.group, place.variable, "units").value_or("");
  out.standard_name = text_of(place.group, place.variable, "standard_name").value_or("");
  return out;
}

std::optional<std::string> NcFile::text_attribute(const std::string& variable, const std::string& attribute) const {
  const Place place = find(variable);
  if (place.variable < 0) return {};
  return text_of(place.group, place.variable, attribute.c_str());
}

std::vector<double> NcFile::read_box(const Place& place, const NcVariable& what, std::vector<std::size_t> start,
                                     std::vector<std::size_t> extent) const {
  const std::string doing = "reading " + quoted(what.name, path_);
  nc_type type = NC_NAT;
  check(nc_inq_vartype(place.group, place.variable, &type), doing);
  require_data(is_number(type), doing, ": it holds text or a user-defined type; only numbers are read");
  std::size_t filters = 0;
  if (nc_inq_var_filter_ids(place.group, place.variable, &filters, nullptr) == NC_NOERR && filters > 0) {
    std::vector<unsigned> ids(filters);
    check(nc_inq_var_filter_ids(place.group, place.variable, &filters, ids.data()), doing);
    for (const unsigned id : ids) {
      require_data(id <= 4, doing, ": it is compressed with filter ", id, id == 32015 ? " (zstandard)" : "",
                   "; rewrite it with deflate: nccopy -d 4 in.nc out.nc");
    }
  }

  std::int64_t n = 1;
  for (const std::size_t e : extent)
    require_data(!__builtin_mul_overflow(n, static_cast<std::int64_t>(e), &n) && n < (std::int64_t{1} << 48), doing,
                 ": impossible size");
  std::error_code error;
  const auto file_size = static_cast<std::int64_t>(fs::file_size(path_, error));
  require_data(n <= file_size * 1040 + (1 << 24), doing, ": it claims ", n, " values, but the file has ", file_size,
               " bytes");
  std::vector<double> values(n);
  if (n == 0) return values;
  check(nc_get_vara_double(place.group, place.variable, start.data(), extent.data(), values.data()), doing);

  const Decoder decode(place.group, place.variable, type, doing);
  for (double& value : values) value = decode(value);
  return values;
}

std::vector<double> NcFile::read(const std::string& variable) const {
  const NcVariable what = describe(variable);
  return read_box(find(variable), what, std::vector<std::size_t>(what.shape.size(), 0),
                  {what.shape.begin(), what.shape.end()});
}

std::vector<double> NcFile::read_slice(const std::string& variable, std::size_t axis, std::int64_t index) const {
  const NcVariable what = describe(variable);
  require(axis < what.shape.size(), "reading ", quoted(variable, path_), ": no axis ", axis);
  const std::int64_t length = what.shape[axis];
  const std::int64_t at = index < 0 ? length + index : index;
  require_usage(at >= 0 && at < length, "reading level ", index, " of ", quoted(variable, path_), ": dimension ",
                what.dims[axis], " has ", length, " entries");
  std::vector<std::size_t> start(what.shape.size(), 0), extent(what.shape.begin(), what.shape.end());
  start[axis] = static_cast<std::size_t>(at);
  extent[axis] = 1;
  return read_box(find(variable), what, std::move(start), std::move(extent));
}

}  // namespace lockstep::prep
