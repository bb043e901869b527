#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "lockstep/io/h5.hpp"
#include "lockstep/models/emulator/emulator_files.hpp"
#include "lockstep/tasks/prediction_file.hpp"

namespace lockstep {

/// Whether predictions are written as netCDF: the extension is .nc.
bool is_netcdf(const PredictionOutput& output);

/// The grid of the rows of a prepared data set, and the predictions on it.
template <class T>
class PredictionGrid {
 public:
  /// errors  data, naming the file: no grid, as in a set that is generated or older or from files with different grids;
  ///         a row that is no point of it
  PredictionGrid(const H5File& input, std::int64_t rows, std::int64_t outputs);
  /// Stores predictions (count, outputs) of the rows from `first` on at their points, as outputs from `output` on.
  void put(std::int64_t first, std::span<const T> values, std::int64_t output, std::int64_t outputs);
  /// Writes a netCDF-4 file by the CF conventions: a variable per output over (file,) and the grid's dimensions, with
  /// its units, and latitude, longitude and time where the rows have them. Points without a row have the fill value.
  void write(const std::filesystem::path& path, const EmulatorVariables& variables,
             const PredictionAttributes& attributes) const;

 private:
  const H5File& input_;
  std::vector<std::string> dims_;  ///< "file" if there are several files, then the grid's dimensions
  std::vector<std::int64_t> shape_;
  std::vector<std::int64_t> point_;  ///< point of each row
  std::int64_t points_ = 1, outputs_;
  std::vector<T> values_;  ///< (outputs, points)
};

}  // namespace lockstep
