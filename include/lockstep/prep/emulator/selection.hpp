#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/options.hpp"
#include "lockstep/prep/emulator/emulator_set.hpp"
#include "lockstep/prep/emulator/grid.hpp"
#include "lockstep/prep/summary.hpp"

namespace lockstep::prep {

/// A column of all files, and what they say of it.
struct CandidateColumn {
  std::string name;                        ///< short
  std::vector<double> values;              ///< [point]; NaN marks a missing value
  std::string cf, units, side = "ocean";   ///< side is "atmosphere" or "ocean"
  std::vector<std::string> variables;      ///< of the files, each once
  std::vector<std::string> without_units;  ///< names of files
  bool filled = false;                     ///< zeros stand for the missing variable of a file
  std::int32_t level = 0;
};

/// All points of all files in file order, before selection.
struct Candidates {
  std::vector<CandidateColumn> columns;  ///< inputs, outputs and columns that only the selection needs
  std::vector<double> lat, lon;          ///< [point], degrees; NaN where unknown
  std::vector<std::int64_t> time, cell;
  std::vector<std::int64_t> step;               ///< place in the order of the file's time axis
  bool dated = true;                            ///< every file has times that are read
  std::vector<std::string> time_axes, undated;  ///< the dated files' variables and units, and why others have no dates
  Calendar calendar = Calendar::standard;
  std::vector<std::int32_t> source;
  std::vector<std::uint8_t> valid;  ///< 1 where the file's own mask accepts the point
  std::vector<std::filesystem::path> files;
  std::vector<std::string> places;   ///< the variables of lat and lon, each combination once
  std::vector<std::string> pairs;    ///< of files, and how their points were paired
  std::vector<std::string> indexed;  ///< the pairs whose points were paired by index
  std::string mask;                  ///< what makes a point valid, for people
  Grid grid;                         ///< of every file; without dimensions if files differ
  Summary summary;                   ///< what was understood while reading

  std::size_t points() const { return valid.size(); }
  /// errors  internal: no such column
  const CandidateColumn& column(const std::string& name) const;
};

/// How rows are selected and split, and which rows give the moments: options of every emulator source.
struct Selection {
  std::vector<std::string> inputs, outputs;
  std::string mask_mode;           ///< sea_ice | ocean | both
  double min_ice = 0;              ///< threshold of sea_ice and ocean
  bool ice_ge = false;             ///< sea_ice keeps aice >= threshold instead of >
  std::string pole;                ///< all | north | south | both
  double lat_min = 40;             ///< degrees
  bool pole_clean = false;         ///< poles also require 0 < aice <= 1
  std::string missing;             ///< error | zero
  std::vector<std::string> units;  ///< `short=units`, instead of the files'
  bool synthetic_label = false;    ///< aice := 0.9 where sst < -1.4 else 0
  std::int64_t max_patterns = 0;
  std::string subsample;  ///< first | random | stride
  double thin_fraction = 1;
  double validation_split = 0, test_split = 0;
  std::string split_by;  ///< random | time | lat-block
  double block_degrees = 5;
  std::vector<std::string> test_files, test_days;
  std::string moments;           ///< train | all
  std::string constant_outputs;  ///< error | keep
  std::uint64_t seed = 0;

  bool needs_aice() const { return mask_mode != "both" || pole_clean; }
  /// Inputs, outputs and the columns that the selection depends on, each once.
  std::vector<std::string> columns_needed() const;
};
void add_selection_options(Options& options, Selection& selection, const std::vector<std::string>& default_inputs,
                           const std::vector<std::string>& default_outputs);
/// Checks combinations of options. errors  usage
void check_selection(const Selection& selection);

/// How many candidates each step keeps.
struct SelectionReport {
  std::int64_t candidates = 0, valid = 0, in_mode = 0, at_pole = 0, complete = 0, subsampled = 0, thinned = 0;
  std::int64_t unplaced = 0;                                  ///< rows of files with positions whose own is missing
  std::vector<std::pair<std::string, std::int64_t>> dropped;  ///< by column: rows with a missing, NaN or infinite value
  ConstantColumns constant;
};
void summarise(const Candidates& candidates, const Selection& selection, const SelectionReport& report,
               const EmulatorSet& set, Summary& summary);
/// A line for each column of a set, with its range. variables  those of the inputs, then of the outputs; may be empty
void summarise_columns(const EmulatorSet& set, const std::vector<std::string>& variables, Summary& summary);

/// Selects rows by mask, mode, pole, completeness, sub-sampling and thinning, in this order; then splits them and
/// computes the moments. errors  data: a step that leaves no rows, a constant output column unless it is kept
EmulatorSet select_rows(const Candidates& candidates, const Selection& selection, SelectionReport& report);

/// The split of each row: 0 train, 1 validation, 2 test. `steps` numbers the rows' time steps in order.
/// errors  data: a requested part that stays empty, a requested day of files without dates
std::vector<std::uint8_t> split_rows(const EmulatorSet& rows, const Selection& selection, const Candidates& candidates,
                                     const std::vector<std::int64_t>& steps);

}  // namespace lockstep::prep
