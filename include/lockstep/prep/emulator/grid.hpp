#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/prep/cf_time.hpp"
#include "lockstep/prep/netcdf.hpp"

namespace lockstep::prep {

/// A column as the user writes it: `short = name[@level][*scale+offset]`. Negative levels count from the end.
struct ColumnSpec {
  std::string short_name, variable;
  std::optional<std::int64_t> level = {};
  double scale = 1, offset = 0;
};
/// Parses `tk = temperature@0*1+273.15`; a bare `sst` is the variable sst. `t = temperature@0:34` are 35 columns t_0 ..
/// t_34. errors  usage: anything else
std::vector<ColumnSpec> parse_columns(std::string_view text);

/// The points of a file: every combination of these dimensions. Rows are numbered in C order.
struct Grid {
  std::filesystem::path file;  ///< that has these dimensions
  std::vector<std::string> dims;
  std::vector<std::int64_t> shape;
  std::int64_t size() const;
};

/// (lat = 2, lon = 3)
std::string dims_text(const std::vector<std::string>& dims, const std::vector<std::int64_t>& shape);

/// The vertical axis of a variable, recognised by its name or its coordinate variable.
std::optional<std::size_t> level_axis(const NcFile& file, const NcVariable& variable);

/// The common grid of the columns: the dimensions of the column that has the most, without levels.
/// errors  usage: a vertical axis without a chosen level, or a chosen level without a vertical axis
Grid common_grid(const NcFile& file, const std::vector<ColumnSpec>& columns);

/// Values of a column at each point. A variable that lacks some of the grid's dimensions (latitude(y), mask(y, x)) is
/// repeated along them. Dimensions are matched by name, because in one file dimensions of equal length and different
/// names belong to staggered grids. The files of one tile may name their dimensions differently: a variable with
/// several dimensions from another file than the grid is otherwise matched by length, last dimension first.
/// errors  data: no such variable, dimensions that do not match
std::vector<double> read_on_grid(const NcFile& file, const ColumnSpec& column, const Grid& grid);
/// Whether read_on_grid() can match the dimensions of a variable.
bool fits_grid(const NcFile& file, const std::string& variable, const Grid& grid);

/// The times of a grid's points, from the variable of the time axis or a scalar.
struct Times {
  std::string variable, units;  ///< "" where the file has none
  Calendar calendar = Calendar::standard;
  std::string trouble;                ///< why there are no dates, or ""
  std::vector<std::int64_t> seconds;  ///< [point], since 1970-01-01 of the calendar; zeros without dates
  std::vector<std::int64_t> step;     ///< [point], place in the order of the axis, which needs no dates
  std::vector<std::string> doubts;    ///< such as an axis that does not rise
};
/// `coordinates`: names in the CF attribute of the columns. Of several variables, one with the standard name `time`
/// comes first (`valid_time` of a forecast), then the axis' own.
Times read_times(const NcFile& file, const Grid& grid, const std::vector<std::string>& coordinates = {});
/// Days since 1970-01-01 of `2016-02-05`. errors  usage: not a date of the calendar
std::int64_t parse_day(std::string_view text, Calendar calendar = Calendar::standard);

/// One condition of `mask == 1 and slmsk != 1`. Candidates satisfy every condition; a missing value satisfies none.
struct MaskTerm {
  std::string variable, op;
  double value;
};
/// errors  usage: another form
std::vector<MaskTerm> parse_mask(std::string_view text);
bool satisfies(double value, const MaskTerm& term);
/// -1, 0 or 1. Values that are f32, or unpacked from integers, are equal to a number that rounds to them: 0.15 as f32 is
/// not more than 0.15.
int compare(double value, double number);

}  // namespace lockstep::prep
