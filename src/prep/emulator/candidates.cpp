#include "prep/emulator/candidates.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <limits>
#include <numbers>
#include <sstream>

#include "lockstep/base/units.hpp"

namespace lockstep::prep {

Candidates start_candidates(const std::vector<std::string>& names) {
  Candidates out;
  out.names = names;
  out.columns.resize(names.size());
  out.level.assign(names.size(), 0);
  out.side.assign(names.size(), "ocean");
  out.cf.assign(names.size(), "");
  out.units.assign(names.size(), "");
  out.variables.resize(names.size());
  out.without_units.resize(names.size());
  out.filled.assign(names.size(), 0);
  for (std::size_t c = 0; c < names.size(); ++c) {
    const KnownColumn* known = find_column(names[c]);
    if (known == nullptr) continue;
    out.cf[c] = known->cf;
    if (std::string(known->pair_file) == "atmosphere") out.side[c] = "atmosphere";
  }
  return out;
}

void take_variable(Candidates& out, std::size_t column, const ColumnSpec& spec, const NcFile& file) {
  const std::string variable = spec.variable + (spec.level ? join("@", *spec.level) : "");
  auto& variables = out.variables[column];
  if (std::ranges::find(variables, variable) == variables.end()) variables.push_back(variable);
  const bool scaled = spec.scale != 1 || spec.offset != 0;
  const std::string units = scaled ? "" : file.describe(spec.variable).units;
  if (units.empty() || units == "none") return out.without_units[column].push_back(file.path().filename().string());
  std::string& before = out.units[column];
  require_data(before.empty() || same_units(before, units), "reading '", file.path().string(), "': ", out.names[column],
               " is in ", units, ", in the files before it in ", before, "; prepare files of one unit");
  if (before.empty()) before = units;
}

namespace {
/// What one file adds to the summary: its times, and what is odd about them.
void add_times(Candidates& out, const Times& times, const std::filesystem::path& file) {
  for (const auto& doubt : times.doubts) out.summary.warning(doubt);
  out.step.insert(out.step.end(), times.step.begin(), times.step.end());
  out.time.insert(out.time.end(), times.seconds.begin(), times.seconds.end());
  if (!times.trouble.empty()) {
    out.dated = false;
    if (std::ranges::find(out.undated, times.trouble) == out.undated.end()) out.undated.push_back(times.trouble);
    return;
  }
  const bool first = out.time_axes.empty();
  require_data(first || comparable(out.calendar, times.calendar), "reading '", file.string(),
               "': its times count in the calendar ", calendar_name(times.calendar),
               ", those of the files before it in ", calendar_name(out.calendar), "; prepare files of one calendar");
  if (first) out.calendar = times.calendar;
  const std::string axis = join(times.variable, ", ", times.units, ", calendar ", calendar_name(times.calendar));
  if (std::ranges::find(out.time_axes, axis) == out.time_axes.end()) out.time_axes.push_back(axis);
}
}  // namespace

void append_points(Candidates& out, FilePoints points, const std::filesystem::path& file) {
  const std::size_t n = points.valid.size();
  const auto append = [&](std::vector<double>& to, const std::vector<double>& from, double otherwise) {
    require(from.empty() || from.size() == n, "gathering '", file.string(), "': ", from.size(), " values for ", n,
            " points");
    if (from.empty()) {
      to.insert(to.end(), n, otherwise);
    } else {
      to.insert(to.end(), from.begin(), from.end());
    }
  };
  for (std::size_t c = 0; c < out.columns.size(); ++c) append(out.columns[c], points.values[c], 0.0);
  append(out.lat, points.lat, std::numeric_limits<double>::quiet_NaN());
  append(out.lon, points.lon, std::numeric_limits<double>::quiet_NaN());
  const std::string place = points.place.empty() ? "unknown" : points.place;
  if (std::find(out.places.begin(), out.places.end(), place) == out.places.end()) out.places.push_back(place);
  points.times.seconds.resize(n, 0);
  points.times.step.resize(n, 0);
  add_times(out, points.times, file);
  out.valid.insert(out.valid.end(), points.valid.begin(), points.valid.end());
  if (out.files.empty()) out.grid = points.grid;
  if (out.grid.dims != points.grid.dims || out.grid.shape != points.grid.shape) out.grid = {};
  for (std::size_t i = 0; i < n; ++i) out.cell.push_back(static_cast<std::int64_t>(i));
  out.source.insert(out.source.end(), n, static_cast<std::int32_t>(out.files.size()));
  out.files.push_back(file);
}

namespace {
struct Direction {
  std::string standard_name, unit;  ///< unit: north or east, as in degrees_north
  char axis;
  const std::vector<std::string>& usual_names;
};

/// Whether the metadata of a variable say that it is a latitude (or longitude).
bool points_in(const NcFile& file, const std::string& name, const Direction& direction) {
  const NcVariable variable = file.describe(name);
  if (!variable.numeric) return false;
  if (!variable.standard_name.empty()) return variable.standard_name == direction.standard_name;
  std::string unit = variable.units;
  if (unit.starts_with("degrees")) unit.erase(6, 1);
  const std::string letter(1, static_cast<char>(std::toupper(direction.unit.front())));
  if (unit == "degree_" + direction.unit || unit == "degree_" + letter || unit == "degree" + letter) return true;
  const bool angle = unit == "degree" || unit.starts_with("radian");
  return angle && file.text_attribute(name, "axis").value_or("") == std::string(1, direction.axis);
}

/// The variable that holds a coordinate of the grid's points.
std::optional<std::string> find_coordinate(const NcFile& file, const Grid& grid, const Direction& direction,
                                           const std::vector<std::string>& coordinates) {
  const std::vector<std::string>& usual = direction.usual_names;
  for (const auto& name : coordinates) {
    if (!file.has(name) || !fits_grid(file, name, grid)) continue;
    if (std::find(usual.begin(), usual.end(), name) != usual.end() || points_in(file, name, direction)) return name;
  }
  std::vector<std::string> names = usual;
  for (const auto& name : file.variables())
    if (points_in(file, name, direction)) names.push_back(name);
  std::optional<std::string> best;
  std::size_t most = 0;
  for (const auto& name : names) {
    if (!file.has(name) || !fits_grid(file, name, grid)) continue;
    const std::size_t dims = file.describe(name).dims.size();
    if (best && dims <= most) continue;
    best = name;
    most = dims;
  }
  return best;
}

/// Degrees of a coordinate, also where the file counts radians.
std::vector<double> read_degrees(const NcFile& file, const std::string& name, const Grid& grid) {
  auto values = read_on_grid(file, {name, name, {}, 1, 0}, grid);
  if (file.describe(name).units.starts_with("rad"))
    for (double& value : values) value *= 180 / std::numbers::pi;
  return values;
}
}  // namespace

void read_place(const NcFile& file, const Grid& grid, const std::string& lat_name, const std::string& lon_name,
                const std::vector<std::string>& coordinates, FilePoints& points) {
  const auto choose = [&](const std::string& name, const Direction& direction) {
    return name.empty() ? find_coordinate(file, grid, direction, coordinates) : std::optional(name);
  };
  const auto lat = choose(lat_name, {"latitude", "north", 'Y', kLatNames}),
             lon = choose(lon_name, {"longitude", "east", 'X', kLonNames});
  if (lat) points.lat = read_degrees(file, *lat, grid);
  if (lat) points.place_grid = {file.path(), file.describe(*lat).dims, file.describe(*lat).shape};
  if (lon) points.lon = read_degrees(file, *lon, grid);
  points.place = lat.value_or("") + (lat && lon ? ", " : "") + lon.value_or("");
}

std::vector<std::string> coordinates_of(const NcFile& file, const std::string& variable) {
  std::istringstream words(file.text_attribute(variable, "coordinates").value_or(""));
  return {std::istream_iterator<std::string>(words), {}};
}

}  // namespace lockstep::prep
