#include "prep/emulator/candidates.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <sstream>

#include "lockstep/base/error.hpp"
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
  for (std::size_t c = 0; c < names.size(); ++c) {
    const KnownColumn* known = find_column(names[c]);
    if (known == nullptr) continue;
    out.cf[c] = known->cf;
    if (std::string(known->pair_file) == "atmosphere") out.side[c] = "atmosphere";
  }
  return out;
}

void take_units(Candidates& out, std::size_t column, const std::string& units, const NcFile& file) {
  if (units.empty() || units == "none") return;
  std::string& before = out.units[column];
  require_data(before.empty() || same_units(before, units), "reading '", file.path().string(), "': ", out.names[column],
               " is in ", units, ", in the files before it in ", before, "; prepare files of one unit");
  if (before.empty()) before = units;
}

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
  points.time.resize(n, 0);
  out.time.insert(out.time.end(), points.time.begin(), points.time.end());
  out.valid.insert(out.valid.end(), points.valid.begin(), points.valid.end());
  if (out.files.empty()) out.grid = points.grid;
  if (out.grid.dims != points.grid.dims || out.grid.shape != points.grid.shape) out.grid = {};
  for (std::size_t i = 0; i < n; ++i) out.cell.push_back(static_cast<std::int64_t>(i));
  out.source.insert(out.source.end(), n, static_cast<std::int32_t>(out.files.size()));
  out.files.push_back(file);
}

namespace {
struct Coordinate {
  const char* standard_name;
  const std::vector<std::string>& usual_names;
};

/// The variable that holds a coordinate of the grid's points.
std::optional<std::string> find_coordinate(const NcFile& file, const Grid& grid, const Coordinate& coordinate,
                                           const std::vector<std::string>& coordinates) {
  const std::vector<std::string>& usual = coordinate.usual_names;
  for (const auto& name : coordinates) {
    if (!file.has(name) || !fits_grid(file, name, grid)) continue;
    if (std::find(usual.begin(), usual.end(), name) != usual.end() ||
        file.describe(name).standard_name == coordinate.standard_name)
      return name;
  }
  std::optional<std::string> best;
  std::size_t most = 0;
  for (const auto& name : usual) {
    if (!file.has(name) || !fits_grid(file, name, grid)) continue;
    const std::size_t dims = file.describe(name).dims.size();
    if (best && dims <= most) continue;
    best = name;
    most = dims;
  }
  return best;
}
}  // namespace

void read_place(const NcFile& file, const Grid& grid, const std::string& lat_name, const std::string& lon_name,
                const std::vector<std::string>& coordinates, FilePoints& points) {
  const auto lat =
      lat_name.empty() ? find_coordinate(file, grid, {"latitude", kLatNames}, coordinates) : std::optional(lat_name);
  const auto lon =
      lon_name.empty() ? find_coordinate(file, grid, {"longitude", kLonNames}, coordinates) : std::optional(lon_name);
  if (lat) points.lat = read_on_grid(file, {"lat", *lat, {}, 1, 0}, grid);
  if (lon) points.lon = read_on_grid(file, {"lon", *lon, {}, 1, 0}, grid);
  points.place = lat.value_or("") + (lat && lon ? ", " : "") + lon.value_or("");
}

std::vector<std::string> coordinates_of(const NcFile& file, const std::string& variable) {
  std::istringstream words(file.text_attribute(variable, "coordinates").value_or(""));
  return {std::istream_iterator<std::string>(words), {}};
}

}  // namespace lockstep::prep
