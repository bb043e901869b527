#include "gather.hpp"

#include <limits>

#include "lockstep/base/error.hpp"

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
    out.units[c] = known->units;
    if (std::string(known->pair_file) == "atmosphere") out.side[c] = "atmosphere";
  }
  return out;
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
  points.time.resize(n, 0);
  out.time.insert(out.time.end(), points.time.begin(), points.time.end());
  out.valid.insert(out.valid.end(), points.valid.begin(), points.valid.end());
  for (std::size_t i = 0; i < n; ++i) out.cell.push_back(static_cast<std::int64_t>(i));
  out.source.insert(out.source.end(), n, static_cast<std::int32_t>(out.files.size()));
  out.files.push_back(file);
}

void read_place(const NcFile& file, const Grid& grid, const std::string& lat_name, const std::string& lon_name,
                FilePoints& points) {
  const auto lat = lat_name.empty() ? first_present(file, kLatNames) : std::optional(lat_name);
  const auto lon = lon_name.empty() ? first_present(file, kLonNames) : std::optional(lon_name);
  if (lat) points.lat = read_on_grid(file, {"lat", *lat, {}, 1, 0}, grid);
  if (lon) points.lon = read_on_grid(file, {"lon", *lon, {}, 1, 0}, grid);
}

}  // namespace lockstep::prep
