#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <optional>
#include <set>

#include "lockstep/base/log.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/formats/emulator_files.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/file_kind.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/io/netcdf_writer.hpp"
#include "lockstep/models/emulator/emulator_operators.hpp"
#include "lockstep/tasks/emulator/emulator_rows.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep {
namespace {

template <class T>
constexpr T kFill = static_cast<T>(9.969209968386869e36);  // of netCDF, for both types

/// The grid of the rows of a prepared data set, and the predictions on it.
template <class T>
class PredictionGrid {
 public:
  /// errors  data, naming the file: no grid, as in a set that is generated or older or from files with different grids;
  ///         a row that is no point of it
  PredictionGrid(const H5File& input, std::int64_t rows, std::int64_t outputs) : input_(input), outputs_(outputs) {
    const std::string where = join("placing the rows of '", input.path().string(), "' on a grid: ");
    require_data(input.has_attribute("/", "grid_dims") && input.has("/cell") && input.has("/source"), where,
                 "it does not say which (attributes grid_dims and grid_shape), because it is generated, from an older "
                 "lockstep-prep or from files with different grids; prepare it again, or choose an output .h5");
    dims_ = input.text_list("/", "grid_dims");
    shape_ = input.int_list("/", "grid_shape", std::ssize(dims_));
    const auto cell = input.read<std::int64_t>("/cell");
    const auto source = input.read<std::int32_t>("/source");
    require_data(std::ssize(cell) == rows && std::ssize(source) == rows, where, cell.size(), " cells and ",
                 source.size(), " sources for ", rows, " rows");
    const std::int64_t files = rows == 0 ? 1 : 1 + std::int64_t{*std::ranges::max_element(source)};
    constexpr std::int64_t kMostPoints = std::int64_t{1} << 40;
    std::int64_t cells = 1;
    for (const std::int64_t length : shape_) {
      require_data(length > 0 && length <= kMostPoints / cells, where, "grid_shape has a length of ", length,
                   ", or more than 2^40 points");
      cells *= length;
    }
    for (std::int64_t row = 0; row < rows; ++row) {
      require_data(cell[row] >= 0 && cell[row] < cells && source[row] >= 0, where, "row ", row, " is point ", cell[row],
                   " of file ", source[row], "; the grid has ", cells, " points");
      point_.push_back(source[row] * cells + cell[row]);
    }
    require_data(files <= kMostPoints / cells, where, files, " files of ", cells, " points are more than 2^40");
    points_ = files * cells;
    if (files > 1) {
      dims_.insert(dims_.begin(), "file");
      shape_.insert(shape_.begin(), files);
    }
    values_.assign(outputs * points_, kFill<T>);
  }

  /// Stores predictions (count, outputs) of the rows from `first` on at their points, as outputs from `output` on.
  void put(std::int64_t first, std::span<const T> values, std::int64_t output, std::int64_t outputs) {
    const std::int64_t count = std::ssize(values) / outputs;
    for (std::int64_t row = 0; row < count; ++row)
      for (std::int64_t o = 0; o < outputs; ++o)
        values_[(output + o) * points_ + point_[first + row]] = values[row * outputs + o];
  }

  /// Writes a netCDF-4 file by the CF conventions: a variable per output over (file,) and the grid's dimensions, with
  /// its units, and latitude, longitude and time where the rows have them. Points without a row have the fill value.
  void write(const std::filesystem::path& path, const EmulatorVariables& variables,
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
        std::vector<double> values(points_, kFill<double>);
        for (std::size_t row = 0; row < rows.size(); ++row) values[point_[row]] = static_cast<double>(rows[row]);
        const std::string name = free(standard_name);
        std::map<std::string, std::string> about = {{"standard_name", standard_name}, {"units", units}};
        if (std::string_view(standard_name) == "time" && input_.has_attribute("/", "calendar"))
          about["calendar"] = input_.text_attribute("/", "calendar");
        file.variable<double>(name, dims_, values, kFill<double>, about);
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
        file.variable<T>(free(name), dims_, std::span(values_).subspan(o * points_, points_), kFill<T>, about);
      }
      file.global_attribute("Conventions", "CF-1.8");
      for (const auto& [name, value] : attributes)
        if (const auto* text = std::get_if<std::string>(&value)) file.global_attribute(name, *text);
      file.close();
    });
  }

 private:
  const H5File& input_;
  std::vector<std::string> dims_;  ///< "file" if there are several files, then the grid's dimensions
  std::vector<std::int64_t> shape_;
  std::vector<std::int64_t> point_;  ///< point of each row
  std::int64_t points_ = 1, outputs_;
  std::vector<T> values_;  ///< (outputs, points)
};

struct Arguments : EmulatorFiles {
  RunConfig config;
};

template <class T>
void predict(World& world, const Args& args, const Arguments& a, const std::vector<TrainedEmulator>& members,
             int threads) {
  const TrainedEmulator& emulator = members.front();
  const bool ensemble = members.size() > 1;
  const std::int64_t in = emulator.network.arch().n_in, out = emulator.network.arch().n_out;
  std::unique_ptr<InputRows> rows;
  bool targets = false;
  const bool netcdf = a.output.format == "auto" && std::filesystem::path(a.output.path).extension() == ".nc";
  std::optional<PredictionGrid<T>> grid;  ///< of rank 0, for netCDF
  world.together("opening the input", [&] {
    const std::vector<std::string> read = a.inputs();
    if (world.rank() == 0 && netcdf)
      require_replaceable(a.output.path, FileKind::predictions, a.output.force, {read.begin(), read.end()});
    if (world.rank() == 0 && !netcdf) require_output(a.output, read);
    rows = std::make_unique<InputRows>(a.input, emulator, world.rank() == 0);
    targets = !rows->other_outputs() && rows->has("/y", out);
    if (rows->other_outputs() && world.rank() == 0)
      log::info("the outputs of '", a.input, "' are not ", listed(emulator.metadata.variables.output_names),
                ", so there is no rmse");
    if (netcdf && world.rank() == 0) grid.emplace(rows->file(), rows->size(), ensemble ? 2 * out : out);
  });
  OperatorOptions options;
  options.threads = threads;
  std::vector<EmulatorOperators<T>> operators;
  for (const TrainedEmulator& member : members) operators.emplace_back(member.network, options);
  // Per output: squared errors and number of rows where prediction and target are finite. Then: rows with an input far
  // from those of training, and rows with a prediction that is not finite.
  constexpr double kFar = 1000;  // standard deviations; training rows reach the root of their number
  const Moments& moments = emulator.network.moments();
  BlockSums blocks(static_cast<std::size_t>(2 * out + 2));
  std::vector<double> sums;
  const PredictionBlock block = [&](std::int64_t first, std::int64_t count, std::vector<PredictionValues>& values) {
    std::vector<T>& predicted = std::get<std::vector<T>>(values[0]);
    const std::span<double> sum = blocks.next_block();
    const std::vector<T> x = rows->read<T>("/x", first, count, in);
    operators[0].template predict<T>(count, {x.data(), in, 1}, {predicted.data(), out, 1});
    if (ensemble) {
      std::vector<std::vector<T>> each = {predicted};
      for (std::size_t m = 1; m < operators.size(); ++m)
        operators[m].template predict<T>(count, {x.data(), in, 1},
                                         {each.emplace_back(predicted.size()).data(), out, 1});
      std::vector<T>& deviation = std::get<std::vector<T>>(values[1]);
      const auto n = static_cast<double>(each.size());
      for (std::size_t i = 0; i < predicted.size(); ++i) {
        double total = 0, squares = 0;
        for (const std::vector<T>& one : each) total += static_cast<double>(one[i]);
        const double mean = total / n;
        for (const std::vector<T>& one : each) squares += std::pow(static_cast<double>(one[i]) - mean, 2);
        predicted[i] = static_cast<T>(mean);
        deviation[i] = static_cast<T>(std::sqrt(squares / (n - 1)));
      }
    }
    const std::vector<T> t = targets ? rows->read<T>("/y", first, count, out) : std::vector<T>();
    for (std::int64_t r = 0; r < count; ++r) {
      bool finite = true, far = false;
      for (std::int64_t i = 0; i < in; ++i)
        far |= std::abs(static_cast<double>(x[r * in + i]) - moments.input_mean[i]) > kFar * moments.input_std[i];
      sum[2 * out] += far ? 1 : 0;
      for (std::int64_t o = 0; o < out; ++o) {
        const double y = static_cast<double>(predicted[r * out + o]);
        finite &= std::isfinite(y);
        if (!targets) continue;
        const double e = y - static_cast<double>(t[r * out + o]);
        if (!std::isfinite(e)) continue;
        sum[2 * o] += e * e;
        sum[2 * o + 1] += 1;
      }
      sum.back() += finite ? 0 : 1;
    }
  };
  std::vector<double> rmse;
  const std::vector<std::string>& names = emulator.metadata.variables.output_names;
  std::vector<PredictionColumn> columns = {
      {.name = "y", .type = h5_type_of<T>::value, .extents = {out}, .labels = names}};
  if (ensemble) columns.push_back({.name = "y_std", .type = h5_type_of<T>::value, .extents = {out}, .labels = names});
  const PredictionAttributes source = describe_source(a, "lockstep predict", args);
  write_predictions(world, netcdf ? PredictionOutput{} : a.output,
                    {.columns = columns,
                     .rows = rows->size(),
                     .block_rows = kEmulatorBlock,
                     .attributes = source,
                     .block = block,
                     .see =
                         [&](std::int64_t first, std::int64_t, const std::vector<PredictionValues>& values) {
                           for (std::size_t c = 0; grid && c < values.size(); ++c)
                             grid->put(first, std::get<std::vector<T>>(values[c]), static_cast<std::int64_t>(c) * out,
                                       out);
                         },
                     .agree =
                         [&] {
                           sums = blocks.total(world);
                           for (std::int64_t o = 0; targets && o < out; ++o)
                             rmse.push_back(sums[2 * o + 1] > 0 ? std::sqrt(sums[2 * o] / sums[2 * o + 1])
                                                                : std::numeric_limits<double>::quiet_NaN());
                         },
                     .finish =
                         [&](H5File& file) {
                           if (targets) file.write<double>("/rmse", rmse, {out});
                           file.write_text("/vars/output_names", names);
                           file.write_text("/vars/output_units", emulator.metadata.variables.output_units);
                         }});
  if (world.rank() != 0) return;
  if (grid) {
    EmulatorVariables written = emulator.metadata.variables;
    written.output_units.resize(names.size());
    written.output_cf.resize(names.size());
    for (std::int64_t o = 0; ensemble && o < out; ++o) {
      written.output_names.push_back(written.output_names[o] + "_std");
      written.output_units.push_back(written.output_units[o]);
      written.output_cf.emplace_back();
    }
    grid->write(a.output.path, written, source);
    std::cout << "wrote " << a.output.path << ": " << rows->size() << " rows on their grid\n";
  }
  for (std::size_t o = 0; o < rmse.size(); ++o)
    std::cout << "  rmse " << names[o] << "  "
              << (std::isnan(rmse[o]) ? "unknown: no row has a target"
                                      : join(rmse[o], " ", emulator.metadata.variables.output_units[o]))
              << "\n";
  if (const double far = sums[2 * out]; far > 0)
    std::cout << "  " << far << (far == 1 ? " row has" : " rows have") << " an input more than " << kFar
              << " standard deviations from the mean of training: look for fill values, or for other units\n";
  if (sums.back() > 0)
    std::cout << "  " << sums.back() << " rows have a prediction that is not finite, because their input is not\n";
  std::cout << std::flush;
}

}  // namespace

int predict_emulator(World& world, const Args& args) {
  Arguments a;
  Options options(
      "lockstep predict", "Apply a trained emulator to states.",
      "The input is an HDF5 file with /x (rows, inputs) in physical units, in the order of the emulator's "
      "variables; a prepared data set is one. The output has /y (rows, outputs) and, if the input has "
      "targets /y, /rmse per output. An ensemble gives the mean of its members, and /y_std, their standard deviation. "
      "An output .nc is a netCDF file with a variable per output, on the grid of the "
      "files that the data set was prepared from. All ranks share the rows.");
  add_file_options(options, a, "predictions");
  options.example(
      "lockstep predict --checkpoint runs/ice/checkpoints/best.h5 --input states.h5 --output predictions.h5",
      "the best weights of a run");
  options.example(
      "mpirun -n 2 lockstep predict --model-file ice.lsem --input states.h5 --output predictions.h5 --precision fp64",
      "in double precision, on two ranks");
  options.example("lockstep predict --checkpoint best.h5 --input columns.h5 --output predictions.nc",
                  "on the grid of the forecast model, for ncdump, xarray and the like");
  if (!parse(world, options, args, a.config)) return 0;
  world.configure({.timeout_s = a.config.dist.timeout, .check_collectives = a.config.dist.check_collectives});
  world.together("reading the options", [&] { require_precision(options); });
  const std::vector<TrainedEmulator> members = load_emulators(world, a);
  const int threads = prepare_cpu(world, a.config);
  if (a.config.run.precision == "fp64")
    predict<double>(world, args, a, members, threads);
  else
    predict<float>(world, args, a, members, threads);
  return 0;
}

}  // namespace lockstep
