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
  for (const auto& name : names) {
    CandidateColumn& column = out.columns.emplace_back();
    column.name = name;
    const KnownColumn* known = find_column(name);
    if (known == nullptr) continue;
    column.cf = known->cf;
    if (std::string(known->pair_file) == "atmosphere") column.side = "atmosphere";
  }
  return out;
}

CandidateColumn& take_variable(Candidates& out, const ColumnSpec& spec, const NcFile& file,
                               const std::vector<double>& values) {
  CandidateColumn& column = *std::ranges::find(out.columns, spec.short_name, &CandidateColumn::name);
  column.values.insert(column.values.end(), values.begin(), values.end());
  if (spec.level) column.level = static_cast<std::int32_t>(*spec.level);
  const std::string variable = spec.variable + (spec.level ? join("@", *spec.level) : "");
  if (std::ranges::find(column.variables, variable) == column.variables.end()) column.variables.push_back(variable);
  const bool scaled = spec.scale != 1 || spec.offset != 0;
  const std::string units = scaled ? "" : file.describe(spec.variable).units;
  if (units.empty() || units == "none") {
    column.without_units.push_back(file.path().filename().string());
    return column;
  }
  require_data(column.units.empty() || same_units(column.units, units), "reading '", file.path().string(),
               "': ", column.name, " is in ", units, ", in the files before it in ", column.units,
               "; prepare files of one unit");
  if (column.units.empty()) column.units = units;
  return column;
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
               "': its times count in the calendar ", name(times.calendar), ", those of the files before it in ",
               name(out.calendar), "; prepare files of one calendar");
  if (first) out.calendar = times.calendar;
  const std::string axis = join(times.variable, ", ", times.units, ", calendar ", name(times.calendar));
  if (std::ranges::find(out.time_axes, axis) == out.time_axes.end()) out.time_axes.push_back(axis);
}
}  // namespace

void append_points(Candidates& out, FilePoints points, const std::filesystem::path& file) {
  const std::size_t n = points.valid.size(), before = out.points();
  for (CandidateColumn& column : out.columns) {
    const std::size_t values = column.values.size() - before;
    require(values == 0 || values == n, "gathering '", file.string(), "': ", values, " values for ", n, " points");
    column.filled = column.filled || values < n;
    column.values.resize(before + n);
  }
  const auto append = [&](std::vector<double>& to, std::vector<double>& from) {
    from.resize(n, std::numeric_limits<double>::quiet_NaN());
    to.insert(to.end(), from.begin(), from.end());
  };
  append(out.lat, points.lat);
  append(out.lon, points.lon);
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
  auto values = read_on_grid(file, {name, name}, grid);
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
