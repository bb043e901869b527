#pragma once
#include "lockstep/prep/emulator/columns.hpp"

namespace lockstep::prep {

/// A table with these columns and no points.
Candidates start_candidates(const std::vector<std::string>& names);
/// Adds the values of a column in one file and records its variable, level and units; "" and "none" mean unknown.
/// errors  data: an earlier file has other units
CandidateColumn& take_variable(Candidates& out, const ColumnSpec& spec, const NcFile& file,
                               const std::vector<double>& values);
/// Points of one file: positions and times.
struct FilePoints {
  Grid grid;
  std::vector<double> lat, lon;  ///< empty: unknown
  std::string place;             ///< the variables of lat and lon
  Grid place_grid;               ///< dimensions of lat
  Times times;
  std::vector<std::uint8_t> valid;
};
/// Ends a file: columns without a value for its points become zeros. errors  data: another calendar than the files
/// before it
void append_points(Candidates& out, FilePoints points, const std::filesystem::path& file);
/// Reads latitude and longitude, in degrees, if the file has them. An empty name selects the first of `coordinates`
/// (from the columns' CF attribute of this name) that fits the grid; otherwise, of the usual names and of the variables
/// with a standard name or units of a latitude that fit, the one with the most dimensions, because lat(y) may be a mere
/// axis beside geolat(y, x).
void read_place(const NcFile& file, const Grid& grid, const std::string& lat_name, const std::string& lon_name,
                const std::vector<std::string>& coordinates, FilePoints& points);
/// The names in the CF attribute `coordinates` of a variable.
std::vector<std::string> coordinates_of(const NcFile& file, const std::string& variable);

/// A coordinate of points by which those of two files are paired.
struct Coordinate {
  enum class Kind : std::uint8_t { plain, latitude, longitude, time };
  std::string name;
  Kind kind = Kind::plain;
  std::vector<double> values;  ///< [point]; a time in seconds since 1970
};
/// Latitude, longitude and time of the points, as far as they are known.
std::vector<Coordinate> coordinates_of(const FilePoints& points);
/// The number of the time step within the file, for files whose times cannot be compared.
Coordinate step_coordinate(const Times& times);
/// For each point of one file the point of the other with the same coordinates, up to rounding; -1 where a coordinate
/// is missing. `what`: "pairing 'a.nc' with 'b.nc'".
/// errors  data: a point without a partner, or with several; the message has the coordinates of both
std::vector<std::int64_t> pair_points(const std::vector<Coordinate>& own, const std::vector<Coordinate>& other,
                                      Calendar calendar, const std::string& what);
/// The values of the partners; NaN without one.
std::vector<double> of_partners(const std::vector<double>& values, const std::vector<std::int64_t>& partner);
/// Records that the order of the points, in these dimensions, is all by which two files can be paired.
void pair_by_index(Candidates& out, const std::string& files, const Grid& own, const Grid& other);
/// "in the same order", "reordered", and how many points of the other file are left aside.
std::string describe_pairs(const std::vector<std::int64_t>& partner, std::size_t others);

}  // namespace lockstep::prep
