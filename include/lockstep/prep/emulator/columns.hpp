#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/prep/emulator/grid.hpp"
#include "lockstep/prep/emulator/selection.hpp"

namespace lockstep::prep {

/// A column with a usual short name, and its names in the two usual file layouts.
struct KnownColumn {
  const char* short_name;
  const char* cf;
  std::vector<const char*> history_names;  ///< in a sea-ice history file, tried in order
  const char* pair_file;                   ///< "atmosphere", "ocean", or "" when CF pairs lack the column
  const char* pair_name;                   ///< its variable there, if not `cf`
};
/// Null for an unknown name.
const KnownColumn* find_column(const std::string& short_name);
/// Accepts known names and those that the user defined (`also`). errors  usage: an unknown name, with the nearest one
void require_known(const std::vector<std::string>& names, const std::map<std::string, std::string>& also,
                   const std::string& source);

/// Parses the `short=name` pairs of an option. errors  usage
std::map<std::string, std::string> parse_names(const std::vector<std::string>& pairs, const std::string& option);

struct HistoryOptions {
  std::vector<std::filesystem::path> files;
  std::map<std::string, std::string> names;  ///< overrides: short name -> variable
};
/// Reads one or several sea-ice history files. A point is valid where the mask is 1.
/// errors  data: a variable is missing (unless selection.missing is zero)
Candidates read_history(const HistoryOptions& options, const Selection& selection);

struct PairOptions {
  std::vector<std::filesystem::path> atmosphere, ocean;  ///< one ocean file per atmosphere file
  std::map<std::string, std::string> names;
  std::int64_t atm_level_index = 127;  ///< recorded for atmosphere variables without a level axis
};
/// Reads an atmosphere file (last level) and an ocean file (level 0) on one grid. A point is valid where
/// 0 < thickness <= 500 m and 183.15 <= air temperature <= 333.15 K.
Candidates read_pair(const PairOptions& options, const Selection& selection);

/// The first of these variables that the file has.
std::optional<std::string> first_present(const NcFile& file, const std::vector<std::string>& names);
inline const std::vector<std::string> kLatNames = {"ULAT",   "TLAT",    "lat", "latitude",
                                                   "geolat", "nav_lat", "yt",  "MetaData/latitude"};
inline const std::vector<std::string> kLonNames = {"ULON",   "TLON",    "lon", "longitude",
                                                   "geolon", "nav_lon", "xt",  "MetaData/longitude"};

}  // namespace lockstep::prep
