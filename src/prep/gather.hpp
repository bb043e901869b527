#pragma once
#include "lockstep/prep/columns.hpp"

namespace lockstep::prep {

/// Starts an empty table with these columns.
Candidates start_candidates(const std::vector<std::string>& names);
/// Appends one file's points: `values[c]` of each column (empty: zeros), their place and time.
struct FilePoints {
  std::vector<std::vector<double>> values;
  std::vector<double> lat, lon;  ///< empty: unknown
  std::vector<std::int64_t> time;
  std::vector<std::uint8_t> valid;
};
void append_points(Candidates& out, FilePoints points, const std::filesystem::path& file);
/// Latitude and longitude on a grid when the file has them; `lat_name` empty tries the usual names.
void read_place(const NcFile& file, const Grid& grid, const std::string& lat_name, const std::string& lon_name,
                FilePoints& points);

}  // namespace lockstep::prep
