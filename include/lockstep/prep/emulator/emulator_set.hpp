#pragma once
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "lockstep/io/dataset_file.hpp"

namespace lockstep::prep {

/// Mean and population standard deviation of columns, in one numerically stable pass. source  Chan, Golub, LeVeque 1983
class RunningMoments {
 public:
  explicit RunningMoments(std::size_t columns) : mean_(columns, 0), m2_(columns, 0) {}
  /// Adds a row.
  template <class T>
  void add(std::span<const T> row) {
    ++n_;
    for (std::size_t c = 0; c < mean_.size(); ++c) {
      const double delta = static_cast<double>(row[c]) - mean_[c];
      mean_[c] += delta / static_cast<double>(n_);
      m2_[c] += delta * (static_cast<double>(row[c]) - mean_[c]);
    }
  }
  std::int64_t rows() const { return n_; }
  const std::vector<double>& mean() const { return mean_; }
  /// Whether the standard deviation is at most 1e-7 of the mean, the resolution of f32, or at most 1e-30.
  bool constant(std::size_t column) const;
  /// Standard deviations; 1 for constant columns.
  std::vector<double> deviation() const;

 private:
  std::int64_t n_ = 0;
  std::vector<double> mean_, m2_;
};

/// Descriptions of columns; each list has one entry per column.
struct ColumnNames {
  std::vector<std::string> names, cf, units;
  std::vector<std::int32_t> level;
};

/// The rows over which the moments are computed.
enum class MomentRows : std::uint8_t { train, all };

/// An emulator data set in memory, as data/README.md describes it.
struct EmulatorSet {
  ColumnNames inputs, outputs;
  std::string input_source = "ocean";
  std::vector<float> x, y;               ///< (n, n_in), (n, n_out), physical units
  std::vector<float> lat, lon;           ///< (n), degrees; zeros where unknown
  std::vector<std::int64_t> time, cell;  ///< (n), s since 1970 or 0; flat index in the source file
  std::vector<std::int32_t> source;      ///< (n), number of the source file
  std::vector<std::string> grid_dims;    ///< dimensions that `cell` indexes; empty: unknown
  std::vector<std::int64_t> grid_shape;  ///< their lengths
  std::vector<std::uint8_t> split;       ///< (n), 0 train, 1 validation, 2 test
  std::vector<float> jac;                ///< (n, n_out, n_in) dy/dx in physical units, or empty
  std::vector<double> input_mean, input_std, output_mean, output_std;
  MomentRows moment_rows = MomentRows::train;
  std::string mask_mode = "both";
  double min_ice = 0;
  std::uint64_t seed = 0;
  std::vector<std::string> sources, sha256;  ///< names and checksums of the raw files
  DatasetNotes notes;                        ///< further attributes: how the rows were chosen

  std::int64_t rows() const { return static_cast<std::int64_t>(split.size()); }
  std::size_t n_in() const { return inputs.names.size(); }
  std::size_t n_out() const { return outputs.names.size(); }
  std::int64_t rows_in(int part) const;
};

/// Names of constant columns.
struct ConstantColumns {
  std::vector<std::string> inputs, outputs;
};
/// Computes the moments of the rows that `moment_rows` names, and returns the columns that are constant in these rows.
/// errors  data: no such rows
ConstantColumns take_moments(EmulatorSet& set);

/// Writes the file atomically. errors  internal: the disk is full; usage: not writable
void write_emulator_set(const std::filesystem::path& path, const EmulatorSet& set);
/// Reads a file back. errors  data: not of this format, a dataset missing or of another shape or type
EmulatorSet read_emulator_set(const H5File& file, std::vector<std::string>* problems = nullptr);

/// Problems of a prepared file, one line each: schema, non-finite values, ranges, split numbers, moments that differ
/// from the recomputed ones. Facts that are not errors, such as constant columns, go to `remarks`.
std::vector<std::string> check_emulator_set(const H5File& file, std::vector<std::string>& remarks);
/// Prints a page about a prepared file: rows, splits, columns with their ranges, origin.
void describe_emulator_set(const H5File& file, std::ostream& out);

}  // namespace lockstep::prep
