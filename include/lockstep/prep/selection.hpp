#pragma once
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/prep/emulator_set.hpp"

namespace lockstep {
class Options;
}

namespace lockstep::prep {

/// All points of all files, in file order, before any is left out. NaN marks a missing value.
struct Candidates {
  std::vector<std::string> names;  ///< short names of the columns that were read: inputs, outputs, and helpers
  std::vector<std::vector<double>> columns;  ///< [column][point]
  std::vector<std::string> cf, units, side;  ///< [column]; side is "atmosphere" or "ocean"
  std::vector<std::int32_t> level;           ///< [column]
  std::vector<double> lat, lon;              ///< [point], degrees; NaN where unknown
  std::vector<std::int64_t> time, cell;
  std::vector<std::int32_t> source;
  std::vector<std::uint8_t> valid;  ///< 1: passes the file's own mask
  std::vector<std::filesystem::path> files;

  std::size_t points() const { return valid.size(); }
  /// errors  internal: it was not read
  const std::vector<double>& column(const std::string& name) const;
};

/// How rows are chosen, split and summed up: the options that every emulator source shares.
struct Selection {
  std::vector<std::string> inputs, outputs;
  std::string mask_mode;         ///< sea_ice | ocean | both
  double min_ice = 0;            ///< threshold of the two former
  bool ice_ge = false;           ///< sea_ice keeps aice >= threshold instead of >
  std::string pole;              ///< all | north | south | both
  double lat_min = 40;           ///< degrees
  bool pole_clean = false;       ///< poles also need 0 < aice <= 1
  std::string missing;           ///< error | zero
  bool synthetic_label = false;  ///< aice := 0.9 where sst < -1.4 else 0
  std::int64_t max_patterns = 0;
  std::string subsample;  ///< first | random | stride
  double thin_fraction = 1;
  double validation_split = 0, test_split = 0;
  std::string split_by;  ///< random | time | lat-block
  double block_degrees = 5;
  std::vector<std::string> test_files, test_days;
  std::string moments;  ///< train | all
  std::uint64_t seed = 0;

  bool needs_aice() const { return mask_mode != "both" || pole_clean; }
  /// Inputs, outputs and the columns that the choices above look at, each once.
  std::vector<std::string> columns_needed() const;
};
void add_selection_options(Options& options, Selection& selection, const std::vector<std::string>& default_inputs,
                           const std::vector<std::string>& default_outputs);
/// What no single option's check can see. errors  usage
void check_selection(const Selection& selection);

/// What became of the candidates, for the user.
struct SelectionReport {
  std::int64_t candidates = 0, valid = 0, in_mode = 0, at_pole = 0, complete = 0, subsampled = 0, thinned = 0;
  std::vector<std::pair<std::string, std::int64_t>> dropped;  ///< rows in which a column is missing, NaN or infinite
};
void print_report(const SelectionReport& report, const EmulatorSet& set, std::ostream& out);

/// Candidates -> rows: the mask, the mode, the pole, complete rows only, sub-sampling, thinning; then splits and moments.
/// errors  data: nothing is left, with the step that left nothing
EmulatorSet select_rows(const Candidates& candidates, const Selection& selection, SelectionReport& report);

/// Numbers each row 0 train, 1 validation or 2 test. errors  data: a part that was asked for and stays empty
std::vector<std::uint8_t> split_rows(const EmulatorSet& rows, const Selection& selection,
                                     const std::vector<std::filesystem::path>& files);

/// SHA-256 of a file, 64 hexadecimal digits. errors  usage: unreadable
std::string sha256_of(const std::filesystem::path& path);
/// Each pattern's files in order of name, the patterns in their own order. errors  usage: a pattern without files
std::vector<std::filesystem::path> expand_files(const std::vector<std::string>& patterns);
/// Whether a file's name or whole path matches a shell pattern.
bool matches_pattern(const std::filesystem::path& file, const std::string& pattern);

}  // namespace lockstep::prep
