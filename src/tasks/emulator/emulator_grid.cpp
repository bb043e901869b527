#include "tasks/emulator/emulator_grid.hpp"

#include <algorithm>
#include <iterator>
#include <set>

#include "lockstep/base/error.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/netcdf_writer.hpp"

namespace lockstep {
namespace {

template <class T>
constexpr T kFill = static_cast<T>(9.969209968386869e36);  // of netCDF, for both types

}  // namespace

bool is_netcdf(const PredictionOutput& output) {
  return output.format == "auto" && std::filesystem::path(output.path).extension() == ".nc";
}

template <class T>
PredictionGrid<T>::PredictionGrid(const H5File& input, std::int64_t rows, std::int64_t outputs)
    : input_(input), outputs_(outputs) {
  const std::string where = join("placing the rows of '", input.path().string(), "' on a grid: ");
  require_data(input.has_attribute("/", "grid_dims") && input.has("/cell") && input.has("/source"), where,
               "it does not say which (attributes grid_dims and grid_shape), because it is generated, from an older "
               "lockstep-prep or from files with different grids; prepare it again, or choose an output .h5");
  dims_ = input.text_list("/", "grid_dims");
  shape_ = input.int_list("/", "grid_shape", std::ssize(dims_));
  const auto cell = input.read<std::int64_t>("/cell");
  const auto source = input.read<std::int32_t>("/source");
  require_data(std::ssize(cell) == rows && std::ssize(source) == rows, where, cell.size(), " cells and ", source.size(),
               " sources for ", rows, " rows");
  const std::int64_t files = rows == 0 ? 1 : 1 + std::int64_t{*std::ranges::max_element(source)};
  constexpr std::int64_t kMostPoints = std::int64_t{1} << 40;
  std::int64_t cells = 1;
  for (const std::int64_t length : shape_) {
    require_data(length > 0 && length <= kMostPoints / cells, where, "grid_shape has a length of ", length,
                 ", or more than 2^40 points");
    cells *= length;
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto at = static_cast<std::size_t>(row);
    require_data(cell[at] >= 0 && cell[at] < cells && source[at] >= 0, where, "row ", row, " is point ", cell[at],
                 " of file ", source[at], "; the grid has ", cells, " points");
    point_.push_back(source[at] * cells + cell[at]);
  }
  require_data(files <= kMostPoints / cells, where, files, " files of ", cells, " points are more than 2^40");
  points_ = files * cells;
  if (files > 1) {
    dims_.insert(dims_.begin(), "file");
    shape_.insert(shape_.begin(), files);
  }
  values_.assign(static_cast<std::size_t>(outputs * points_), kFill<T>);
}

template <class T>
void PredictionGrid<T>::put(std::int64_t first, std::span<const T> values, std::int64_t output, std::int64_t outputs) {
  const std::int64_t count = std::ssize(values) / outputs;
  for (std::int64_t row = 0; row < count; ++row)
    for (std::int64_t o = 0; o < outputs; ++o)
      values_[static_cast<std::size_t>((output + o) * points_ + point_[static_cast<std::size_t>(first + row)])] =
          values[static_cast<std::size_t>(row * outputs + o)];
}

template <class T>
void PredictionGrid<T>::write(const std::filesystem::path& path, const EmulatorVariables& variables,
                              const PredictionAttributes& attributes) const {
  write_atomically(path, [&](const std::filesystem::path& temporary) {
    NetcdfWriter file(temporary);
    // A variable that is no axis must not have the name of a dimension.
    std::set<std::string> taken;
    const auto free = [&](std::string name) {
      while (!taken.insert(name).second) name += "_";
      return name;
    };
    for (std::size_t d = 0; d < dims_.size(); ++d) file.dimension(free(dims_[d]), shape_[d]);
    const std::vector<std::string> files = input_.text_list("/", "sources");
    if (dims_.size() > 1 && dims_[0] == "file" && std::ssize(files) >= shape_[0])
      file.texts(free("file_name"), "file", {files.begin(), files.begin() + shape_[0]},
                 {{"long_name", "file of the points"}});

    std::string coordinates;
    const auto coordinate = [&]<class V>(const char* dataset, const char* standard_name, const char* units, V) {
      if (!input_.has(dataset)) return;
      const std::vector<V> rows = input_.read<V>(dataset);
      if (rows.size() != point_.size() || std::ranges::all_of(rows, [](V v) { return v == 0; })) return;
      std::vector<double> values(static_cast<std::size_t>(points_), kFill<double>);
      for (std::size_t row = 0; row < rows.size(); ++row)
        values[static_cast<std::size_t>(point_[row])] = static_cast<double>(rows[row]);
      const std::string name = free(standard_name);
      file.variable<double>(name, dims_, values, kFill<double>, {{"standard_name", standard_name}, {"units", units}});
      coordinates += (coordinates.empty() ? "" : " ") + name;
    };
    coordinate("/lat", "latitude", "degrees_north", float());
    coordinate("/lon", "longitude", "degrees_east", float());
    coordinate("/time", "time", "seconds since 1970-01-01 00:00:00", std::int64_t());

    for (std::size_t o = 0; o < static_cast<std::size_t>(outputs_); ++o) {
      const std::string& name = variables.output_names[o];
      std::map<std::string, std::string> about = {{"long_name", name + ", predicted"}};
      if (o < variables.output_units.size() && !variables.output_units[o].empty())
        about["units"] = variables.output_units[o];
      if (o < variables.output_cf.size() && !variables.output_cf[o].empty())
        about["standard_name"] = variables.output_cf[o];
      if (!coordinates.empty()) about["coordinates"] = coordinates;
      const auto points = static_cast<std::size_t>(points_);
      file.variable<T>(free(name), dims_, std::span(values_).subspan(o * points, points), kFill<T>, about);
    }
    file.global_attribute("Conventions", "CF-1.8");
    for (const auto& [name, value] : attributes)
      if (const auto* text = std::get_if<std::string>(&value)) file.global_attribute(name, *text);
    file.close();
  });
}

template class PredictionGrid<float>;
template class PredictionGrid<double>;

}  // namespace lockstep
