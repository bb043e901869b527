#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/placement.hpp"
#include "lockstep/data/split.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep {

class H5File;

/// Mean and standard deviation of each input and output column: z = (x - mean) / std. Units: those of the columns.
struct Moments {
  std::vector<double> input_mean, input_std;    ///< (n_in)
  std::vector<double> output_mean, output_std;  ///< (n_out)
  bool operator==(const Moments&) const = default;
};

/// What the columns are. Every list has one entry per column; CF names, units and levels may be "" and 0.
struct EmulatorVariables {
  std::vector<std::string> input_names, output_names;  ///< short names: "sst", "aice"
  std::vector<std::string> input_cf, output_cf;        ///< CF standard names: "sea_ice_area_fraction"
  std::vector<std::string> input_units, output_units;
  std::vector<std::int64_t> input_level, output_level;
  std::string input_source;  ///< "atmosphere" or "ocean", or one per input separated by commas
  bool operator==(const EmulatorVariables&) const = default;
};

/// errors  data, naming `source`: a length that is not that of the columns, a value that is not finite, std <= 0
void check_moments(const Moments& moments, std::int64_t n_in, std::int64_t n_out, const std::string& source);
/// `/norm/*` or `/moments/*`, and `/vars/*` of prepared files, model files and checkpoints. errors  data: missing,
/// another length, std <= 0
Moments read_moments(const H5File& file, const std::string& group, std::int64_t n_in, std::int64_t n_out);
void write_moments(H5File& file, const std::string& group, const Moments& moments);
EmulatorVariables read_variables(const H5File& file, const std::string& group, std::int64_t n_in, std::int64_t n_out);
void write_variables(H5File& file, const std::string& group, const EmulatorVariables& variables);

/// A prepared data set (lockstep-emulator-data) in memory: raw physical columns in f32, and the rows of each split.
///
/// Only the process that fills a copy reads and checks the columns; the memory is what the arrays take, and the file is
/// read in place.
struct EmulatorData {
  std::filesystem::path path;
  Tensor x;         ///< f32 (n, n_in), physical units
  Tensor y;         ///< f32 (n, n_out), physical units
  Tensor order;     ///< i32 (n): row numbers, training rows first, then validation, then test; ascending within a split
  Tensor jacobian;  ///< f32 (n, n_out, n_in) dy/dx in physical units where the file knows it (/jac); empty otherwise
  std::array<std::int64_t, 3> count{};  ///< rows of each split
  Moments moments;
  EmulatorVariables variables;
  std::string mask_mode;   ///< sea_ice | ocean | both, or "" where the file does not say
  std::uint64_t hash = 0;  ///< XXH3 over x, y, order, the Jacobian and the moments

  std::int64_t rows() const { return x.shape()[0]; }
  std::int64_t n_in() const { return x.shape()[1]; }
  std::int64_t n_out() const { return y.shape()[1]; }
  /// Row numbers of a split.
  std::span<const std::int32_t> rows_of(Split split) const;
  bool has_jacobian() const { return static_cast<bool>(jacobian); }

  /// Reads a file that lockstep-prep wrote.
  /// errors  data, naming the file: another format or version; a missing attribute or dataset; a shape or type that
  /// does not fit;
  ///         a value that is not finite, with its column and row; a split without training or validation rows; std <=
  ///         0.
  static EmulatorData read(const std::filesystem::path& path, Placement& placement);
};

}  // namespace lockstep
