#pragma once
#include "lockstep/prep/emulator/columns.hpp"

namespace lockstep::prep {

/// A table with these columns and no points.
Candidates start_candidates(const std::vector<std::string>& names);
/// Records the units of a column in one file; "" and "none" mean unknown. errors  data: an earlier file has other units
void take_units(Candidates& out, std::size_t column, const std::string& units, const NcFile& file);
/// Points of one file: `values[c]` of each column (empty: zeros), positions and times.
struct FilePoints {
  Grid grid;
  std::vector<std::vector<double>> values;
  std::vector<double> lat, lon;  ///< empty: unknown
  std::string place;             ///< the variables of lat and lon
  std::vector<std::int64_t> time;
  std::vector<std::uint8_t> valid;
};
void append_points(Candidates& out, FilePoints points, const std::filesystem::path& file);
/// Reads latitude and longitude if the file has them. An empty name selects the first of `coordinates` (from the
/// columns' CF attribute of this name) that fits the grid; otherwise, of the usual names that fit, the one with the
/// most dimensions, because lat(y) may be a mere axis beside geolat(y, x).
void read_place(const NcFile& file, const Grid& grid, const std::string& lat_name, const std::string& lon_name,
                const std::vector<std::string>& coordinates, FilePoints& points);
/// The names in the CF attribute `coordinates` of a variable.
std::vector<std::string> coordinates_of(const NcFile& file, const std::string& variable);

}  // namespace lockstep::prep
