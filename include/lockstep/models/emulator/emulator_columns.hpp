#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

class H5File;

/// Mean and standard deviation of each input and output column, in the units of the column: z = (x - mean) / std.
struct Moments {
  std::vector<double> input_mean, input_std;    ///< (n_in)
  std::vector<double> output_mean, output_std;  ///< (n_out)
  bool operator==(const Moments&) const = default;
};
/// The vectors by their names in files.
inline constexpr std::pair<const char*, std::vector<double> Moments::*> kMoments[] = {
    {"input_mean", &Moments::input_mean},
    {"input_std", &Moments::input_std},
    {"output_mean", &Moments::output_mean},
    {"output_std", &Moments::output_std}};

/// Description of the columns, one entry per column. An unknown CF name or unit is "", an unknown level 0.
struct EmulatorVariables {
  std::vector<std::string> input_names, output_names;  ///< short names: "sst", "aice"
  std::vector<std::string> input_cf, output_cf;        ///< CF standard names: "sea_ice_area_fraction"
  std::vector<std::string> input_units, output_units;
  std::vector<std::int64_t> input_level, output_level;
  std::string input_source;  ///< "atmosphere" or "ocean", for all inputs or as a comma-separated list of one per input
  bool operator==(const EmulatorVariables&) const = default;
};

/// Refuses data whose columns differ from a model's in units or levels. Unknown units ("") match any, with a note if
/// only the data's are; a level counted from the start is not compared with one counted from the end (negative).
/// Compares only the columns that `data` lists.
/// errors  data, naming `where`, the column and both values
void require_same_units(const EmulatorVariables& model, const EmulatorVariables& data, const std::string& where);

/// errors  data, naming `source`: a wrong number of entries, a value that is not finite, std <= 0
void check_moments(const Moments& moments, std::int64_t n_in, std::int64_t n_out, const std::string& source);
/// Reads and writes the groups /norm or /moments, and /vars, of prepared files, model files and checkpoints.
/// errors  data: a missing dataset, a wrong number of entries, std <= 0
Moments read_moments(const H5File& file, const std::string& group, std::int64_t n_in, std::int64_t n_out);
void write_moments(H5File& file, const std::string& group, const Moments& moments);
EmulatorVariables read_variables(const H5File& file, const std::string& group, std::int64_t n_in, std::int64_t n_out);
void write_variables(H5File& file, const std::string& group, const EmulatorVariables& variables);

}  // namespace lockstep
