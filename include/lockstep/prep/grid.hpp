#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/prep/netcdf.hpp"

namespace lockstep::prep {

/// A column as the user names it: `short = name[@level][*scale+offset]`. A negative level counts from the end.
struct ColumnSpec {
  std::string short_name, variable;
  std::optional<std::int64_t> level;
  double scale = 1, offset = 0;
};
/// `tk = temperature@0*1+273.15`; a bare `sst` is the variable sst. errors  usage: anything else
ColumnSpec parse_column(std::string_view text);

/// The points of a file: every combination of these dimensions, in C order. Rows are numbered so.
struct Grid {
  std::vector<std::string> dims;
  std::vector<std::int64_t> shape;
  std::int64_t size() const;
};

/// The axis of a variable that is vertical, if its name or its coordinate variable says so.
std::optional<std::size_t> level_axis(const NcFile& file, const NcVariable& variable);

/// The grid on which all these columns lie: the one with most dimensions, levels left out.
/// errors  usage: a variable with a vertical axis and no level chosen, a level of a variable without such an axis
Grid common_grid(const NcFile& file, const std::vector<ColumnSpec>& columns);

/// Values of a column at each point; a variable that lacks some of the grid's dimensions (latitude(y), mask(y, x)) is repeated
/// along them. Dimensions are matched by name, else by their lengths from the end (files of one tile may name them differently).
/// errors  data: no such variable, dimensions that do not fit
std::vector<double> read_on_grid(const NcFile& file, const ColumnSpec& column, const Grid& grid);

/// Seconds since 1970-01-01 of each point from the coordinate variable of the grid's time axis (or a scalar `time`); zeros where the
/// file does not say, or counts in a calendar of its own.
std::vector<std::int64_t> read_times(const NcFile& file, const Grid& grid);
/// `days since 2016-02-01 12:00:00` -> how a value becomes seconds since 1970. Nothing when the text is no such unit.
struct TimeUnit {
  double seconds_per_unit;
  std::int64_t origin_s;
};
std::optional<TimeUnit> parse_time_unit(std::string_view units);
/// Days since 1970-01-01 of `2016-02-05`. errors  usage: no date
std::int64_t parse_day(std::string_view text);

/// `mask == 1 and slmsk != 1`: what a point must satisfy to be a candidate. A missing value satisfies nothing.
struct MaskTerm {
  std::string variable, op;
  double value;
};
/// errors  usage: not of this form
std::vector<MaskTerm> parse_mask(std::string_view text);
bool satisfies(double value, const MaskTerm& term);

}  // namespace lockstep::prep
