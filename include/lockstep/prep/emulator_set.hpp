#pragma once
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/io/h5.hpp"

namespace lockstep::prep {

/// Mean and population standard deviation of columns, in one pass that loses no digits. source  Chan, Golub, LeVeque 1983
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
  /// Joins the rows of another part.
  void merge(const RunningMoments& other);
  std::int64_t rows() const { return n_; }
  const std::vector<double>& mean() const { return mean_; }
  /// A standard deviation of at most 1e-6 counts as a constant column and becomes 1.
  std::vector<double> deviation() const;

 private:
  std::int64_t n_ = 0;
  std::vector<double> mean_, m2_;
};

/// What the columns are. One entry per column in each list.
struct ColumnNames {
  std::vector<std::string> names, cf, units;
  std::vector<std::int32_t> level;
};

/// Which rows the moments are taken over.
enum class MomentRows : std::uint8_t { train, all };

/// An emulator data set in memory, as data/README.md describes it.
struct EmulatorSet {
  ColumnNames inputs, outputs;
  std::string input_source = "ocean";
  std::vector<float> x, y;               ///< (n, n_in), (n, n_out), physical units
  std::vector<float> lat, lon;           ///< (n), degrees; zeros where unknown
  std::vector<std::int64_t> time, cell;  ///< (n), s since 1970 or 0; flat index in the source file
  std::vector<std::int32_t> source;      ///< (n), number of the source file
  std::vector<std::uint8_t> split;       ///< (n), 0 train, 1 validation, 2 test
  std::vector<float> jac;                ///< (n, n_out, n_in) dy/dx in physical units, or empty
  std::vector<double> input_mean, input_std, output_mean, output_std;
  MomentRows moment_rows = MomentRows::train;
  std::string mask_mode = "both";
  double min_ice = 0;
  std::uint64_t seed = 0;
  std::vector<std::string> sources, sha256;            ///< names and sums of the raw files
  std::vector<std::pair<std::string, H5Value>> notes;  ///< further attributes: how the rows were chosen

  std::int64_t rows() const { return static_cast<std::int64_t>(split.size()); }
  std::size_t n_in() const { return inputs.names.size(); }
  std::size_t n_out() const { return outputs.names.size(); }
  std::int64_t rows_in(int part) const;
};

/// Fills the moments from the rows that `moment_rows` names. errors  data: no such rows
void take_moments(EmulatorSet& set);

/// Writes the file whole or not at all. errors  internal: the disk is full; usage: not writable
void write_emulator_set(const std::filesystem::path& path, const EmulatorSet& set);
/// Reads a file back. errors  data: not of this format, a dataset missing or of another shape or type
EmulatorSet read_emulator_set(const H5File& file);

/// What is wrong with a prepared file, one line each; empty when everything holds: schema, finite values, ranges, split numbers,
/// moments recomputed. Constant columns and the like are no errors and go to `remarks`.
std::vector<std::string> check_emulator_set(const H5File& file, std::vector<std::string>& remarks);
/// A page about a prepared file: rows, splits, columns with their ranges, origin.
void describe_emulator_set(const H5File& file, std::ostream& out);

}  // namespace lockstep::prep
