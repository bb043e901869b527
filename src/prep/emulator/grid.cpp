#include "lockstep/prep/emulator/grid.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "lockstep/base/error.hpp"

namespace lockstep::prep {

namespace {

std::string dims_text(const std::vector<std::string>& dims, const std::vector<std::int64_t>& shape) {
  std::string out = "(";
  for (std::size_t i = 0; i < dims.size(); ++i) out += (i > 0 ? ", " : "") + dims[i] + " = " + std::to_string(shape[i]);
  return out + ")";
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// Whether a dimension is a time axis, by its name or its coordinate variable.
bool is_time(const NcFile& file, const std::string& dim) {
  if (file.has(dim) &&
      (file.text_attribute(dim, "axis").value_or("") == "T" || parse_time_unit(file.describe(dim).units)))
    return true;
  const std::string name = lower(dim);
  return name == "t" || name == "record" || name.find("time") != std::string::npos;
}

/// The variable without its level axis, if a level is chosen. If no axis is known to be vertical, the third from the
/// end is taken, unless it is the time.
NcVariable without_level(const NcFile& file, const ColumnSpec& column, std::optional<std::size_t>& axis) {
  NcVariable variable = file.describe(column.variable);
  axis = level_axis(file, variable);
  const std::string what = "variable '" + column.variable + "' of '" + file.path().string() + "' has dimensions " +
                           dims_text(variable.dims, variable.shape);
  if (!column.level) {
    require_usage(!axis || variable.shape[*axis] == 1, what, ": choose a level, ", column.variable, "@0");
    axis.reset();
    return variable;
  }
  if (const std::size_t n = variable.dims.size(); !axis && n >= 3 && !is_time(file, variable.dims[n - 3])) axis = n - 3;
  require_usage(axis.has_value(), what, ": it has no levels to choose from; leave out '@", *column.level, "'");
  variable.dims.erase(variable.dims.begin() + static_cast<std::ptrdiff_t>(*axis));
  variable.shape.erase(variable.shape.begin() + static_cast<std::ptrdiff_t>(*axis));
  return variable;
}

/// The stride of the variable along each grid axis, 0 where it is repeated; nullopt if the axes do not match.
std::optional<std::vector<std::int64_t>> match_axes(const NcFile& file, const NcVariable& variable, const Grid& grid) {
  std::vector<std::size_t> to_grid(variable.dims.size());
  bool by_name = true;
  std::size_t axes = 0, grid_axes = 0;  // those with more than one entry
  for (std::size_t i = 0; i < variable.dims.size(); ++i) {
    const auto found = std::find(grid.dims.begin(), grid.dims.end(), variable.dims[i]);
    to_grid[i] = static_cast<std::size_t>(found - grid.dims.begin());
    by_name = by_name && (found != grid.dims.end() || variable.shape[i] == 1);
    axes += variable.shape[i] > 1;
  }
  for (const std::int64_t extent : grid.shape) grid_axes += extent > 1;
  if (!by_name) {
    if (file.path() == grid.file || (axes < 2 && grid_axes > 1)) return {};
    std::size_t at = grid.shape.size();
    for (std::size_t i = variable.shape.size(); i-- > 0;) {
      if (variable.shape[i] == 1 && (at == 0 || grid.shape[at - 1] != 1)) {
        to_grid[i] = grid.dims.size();
        continue;
      }
      if (at == 0) return {};
      to_grid[i] = --at;
    }
  }
  std::vector<std::int64_t> stride(grid.shape.size(), 0);
  std::int64_t step = 1;
  for (std::size_t i = variable.shape.size(); i-- > 0;) {
    if (to_grid[i] < grid.shape.size()) {
      if (grid.shape[to_grid[i]] != variable.shape[i]) return {};
      stride[to_grid[i]] = variable.shape[i] == 1 ? 0 : step;
    }
    step *= variable.shape[i];
  }
  return stride;
}

}  // namespace

std::int64_t Grid::size() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::optional<std::size_t> level_axis(const NcFile& file, const NcVariable& variable) {
  static const std::array<std::string_view, 18> kNames = {"level", "lev",   "levels", "nlev",  "nlevs",    "depth",
                                                          "z",     "zl",    "height", "pfull", "plev",     "layer",
                                                          "sigma", "s_rho", "ncat",   "zaxis", "pressure", "altitude"};
  for (std::size_t axis = 0; axis < variable.dims.size(); ++axis) {
    const std::string& dim = variable.dims[axis];
    if (file.has(dim)) {
      const std::string marked =
          file.text_attribute(dim, "axis").value_or(file.text_attribute(dim, "cartesian_axis").value_or(""));
      if (marked == "Z" || file.text_attribute(dim, "positive")) return axis;
    }
    std::string name = lower(dim);
    while (!name.empty() && (std::isdigit(static_cast<unsigned char>(name.back())) || name.back() == '_'))
      name.pop_back();
    if (std::find(kNames.begin(), kNames.end(), name) != kNames.end()) return axis;
  }
  return {};
}

Grid common_grid(const NcFile& file, const std::vector<ColumnSpec>& columns) {
  Grid grid;
  for (const auto& column : columns) {
    std::optional<std::size_t> axis;
    NcVariable variable = without_level(file, column, axis);
    if (variable.dims.size() > grid.dims.size())
      grid = {file.path(), std::move(variable.dims), std::move(variable.shape)};
  }
  for (const std::int64_t extent : grid.shape)
    require_data(extent > 0, "reading '", file.path().string(), "': its grid ", dims_text(grid.dims, grid.shape),
                 " has no points");
  return grid;
}

std::vector<double> read_on_grid(const NcFile& file, const ColumnSpec& column, const Grid& grid) {
  std::optional<std::size_t> axis;
  const NcVariable variable = without_level(file, column, axis);
  const auto strides = match_axes(file, variable, grid);
  if (!strides)
    throw Error(Fault::data,
                join("reading '", column.variable, "' of '", file.path().string(), "': its dimensions ",
                     dims_text(variable.dims, variable.shape), " do not fit the other columns' ",
                     dims_text(grid.dims, grid.shape), "; interpolate it to their grid first, or leave it out"));
  const std::vector<std::int64_t>& stride = *strides;
  const std::vector<double> values =
      axis ? file.read_slice(column.variable, *axis, *column.level) : file.read(column.variable);
  std::vector<double> out(static_cast<std::size_t>(grid.size()));
  std::vector<std::int64_t> index(grid.shape.size(), 0);
  std::int64_t at = 0;
  for (double& value : out) {
    value = values[static_cast<std::size_t>(at)] * column.scale + column.offset;
    for (std::size_t d = grid.shape.size(); d-- > 0;) {
      at += stride[d];
      if (++index[d] < grid.shape[d]) break;
      at -= stride[d] * grid.shape[d];
      index[d] = 0;
    }
  }
  return out;
}

bool fits_grid(const NcFile& file, const std::string& variable, const Grid& grid) {
  return match_axes(file, file.describe(variable), grid).has_value();
}

std::vector<std::int64_t> read_times(const NcFile& file, const Grid& grid) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(grid.size()), 0);
  std::vector<std::string> candidates = grid.dims;
  candidates.emplace_back("time");
  for (const auto& name : candidates) {
    if (!file.has(name)) continue;
    const NcVariable variable = file.describe(name);
    const auto unit = parse_time_unit(variable.units);
    const std::string calendar = lower(file.text_attribute(name, "calendar").value_or("standard"));
    const bool civil = calendar == "standard" || calendar == "gregorian" || calendar == "proleptic_gregorian";
    if (!unit || !civil || variable.shape.size() > 1) continue;
    const bool on_grid = variable.shape.empty() || variable.shape[0] == 1 ||
                         std::find(grid.dims.begin(), grid.dims.end(), name) != grid.dims.end();
    if (!on_grid) continue;
    const auto values = variable.shape.size() == 1 && variable.shape[0] == 1
                            ? std::vector<double>(out.size(), file.read(name).front())
                            : read_on_grid(file, {name, name, {}, 1, 0}, grid);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double seconds = values[i] * unit->seconds_per_unit;
      if (std::abs(seconds) < 1e15) out[i] = unit->origin_s + std::llround(seconds);  // neither NaN nor beyond 64 bits
    }
    break;
  }
  return out;
}

}  // namespace lockstep::prep
