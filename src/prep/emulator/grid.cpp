#include "lockstep/prep/emulator/grid.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep::prep {

std::string dims_text(const std::vector<std::string>& dims, const std::vector<std::int64_t>& shape) {
  std::string out = "(";
  for (std::size_t i = 0; i < dims.size(); ++i) out += (i > 0 ? ", " : "") + dims[i] + " = " + std::to_string(shape[i]);
  return out + ")";
}

namespace {
std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// Whether a variable counts from a date, whatever its unit and calendar.
bool counts_time(const NcVariable& variable) { return lower(variable.units).find(" since ") != std::string::npos; }

/// Whether a dimension is a time axis, by its name or its coordinate variable.
bool is_time(const NcFile& file, const std::string& dim) {
  if (file.has(dim) && (file.text_attribute(dim, "axis").value_or("") == "T" || counts_time(file.describe(dim))))
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
  variable.dims.erase(variable.dims.begin() + *axis);
  variable.shape.erase(variable.shape.begin() + *axis);
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
  std::vector<double> out(grid.size());
  std::vector<std::int64_t> index(grid.shape.size(), 0);
  std::int64_t at = 0;
  for (double& value : out) {
    value = values[at] * column.scale + column.offset;
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

namespace {
/// The variable of the points' times, "" without one.
std::string time_variable(const NcFile& file, const Grid& grid, const std::vector<std::string>& coordinates) {
  std::vector<std::string> names = coordinates;
  names.insert(names.end(), grid.dims.begin(), grid.dims.end());
  names.emplace_back("time");
  for (const auto& name : file.variables()) {
    const NcVariable variable = file.describe(name);
    if (variable.dims.size() == 1 && is_time(file, variable.dims[0])) names.push_back(name);
  }
  std::string first;
  for (const auto& name : names) {
    if (!file.has(name)) continue;
    const NcVariable variable = file.describe(name);
    const std::string& meaning = variable.standard_name;
    if (!variable.numeric || meaning.starts_with("forecast_") || !fits_grid(file, name, grid)) continue;
    const bool own_axis = std::ranges::find(grid.dims, name) != grid.dims.end() && is_time(file, name);
    if (!counts_time(variable) && !own_axis) continue;
    if (meaning == "time" && counts_time(variable)) return name;
    if (first.empty()) first = name;
  }
  return first;
}
}  // namespace

Times read_times(const NcFile& file, const Grid& grid, const std::vector<std::string>& coordinates) {
  const auto n = static_cast<std::size_t>(grid.size());
  Times out;
  out.variable = time_variable(file, grid, coordinates);
  std::vector<double> values(n, 0);
  if (out.variable.empty()) {
    // Without a variable the places along the axis are the order.
    const auto axis = std::ranges::find_if(grid.dims, [&](const auto& dim) { return is_time(file, dim); });
    const auto at = axis - grid.dims.begin();
    std::int64_t below = 1;
    for (auto d = std::ssize(grid.dims) - 1; d > at; --d) below *= grid.shape[d];
    for (std::size_t i = 0; axis != grid.dims.end() && i < n; ++i)
      values[i] = static_cast<double>(static_cast<std::int64_t>(i) / below % grid.shape[at]);
    out.trouble = "no variable counts time from a date";
  } else {
    values = read_on_grid(file, {out.variable, out.variable}, grid);
  }
  std::vector<double> steps = values;
  std::erase_if(steps, [](double v) { return !std::isfinite(v); });
  std::ranges::sort(steps);
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  for (const double value : values)
    out.step.push_back(std::ranges::lower_bound(steps, std::isfinite(value) ? value : 0.0) - steps.begin());
  out.seconds.assign(n, 0);
  if (out.variable.empty()) return out;

  const NcVariable variable = file.describe(out.variable);
  out.units = variable.units;
  const std::string named = file.text_attribute(out.variable, "calendar").value_or("");
  const auto calendar = parse_calendar(named);
  const auto unit = calendar ? TimeUnit::parse(out.units, *calendar) : std::nullopt;
  const std::string of = "of " + out.variable + " in '" + file.path().string() + "'";
  out.calendar = calendar.value_or(Calendar::standard);
  if (!calendar) {
    out.trouble = "the calendar '" + named + "' of " + out.variable + " is not read";
  } else if (!unit) {
    out.trouble = "the unit '" + out.units + "' of " + out.variable + " is not read";
  } else {
    if (unit->in_months()) out.units += " (months of the calendar)";
    std::int64_t missing = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const auto seconds = unit->seconds(values[i]);
      out.seconds[i] = seconds.value_or(0);
      missing += !seconds;
    }
    if (missing > 0)
      out.doubts.push_back(join("times ", of, ": ", missing, " of ", n, " points have none, stored as 0"));
  }
  const auto text = [&](double value) {
    const auto seconds = unit ? unit->seconds(value) : std::nullopt;
    return seconds ? date_text(*seconds, out.calendar) : printed("%.10g", value);
  };
  if (variable.shape.size() == 1) {
    const auto axis = file.read(out.variable);
    for (std::size_t i = 1; i < axis.size(); ++i) {
      if (axis[i] > axis[i - 1]) continue;
      out.doubts.push_back(join("times ", of, " do not rise: entry ", i, " is ", text(axis[i]), " after ",
                                text(axis[i - 1]), "; look for repeated or exchanged files or steps"));
      break;
    }
  }
  return out;
}

}  // namespace lockstep::prep
