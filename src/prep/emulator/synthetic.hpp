#pragma once
#include "lockstep/base/options.hpp"
#include "lockstep/prep/emulator/emulator_set.hpp"

namespace lockstep::prep {

/// Options that the generators share: number of rows, split, storage of the true Jacobian.
struct Synthetic {
  std::int64_t rows = 0;
  std::uint64_t seed = 0;
  double validation_split = 0.1, test_split = 0.1;
  bool jacobian = true;

  enum class Rows : std::uint8_t { option, derived };
  Synthetic(Options& options, std::int64_t default_rows, Rows kind = Rows::option, bool default_jacobian = true);
  /// Reserves memory for n rows of the set's columns.
  /// advice  the options to lower
  /// errors  usage: memory or the output's file system cannot hold the rows
  void reserve(EmulatorSet& set, std::int64_t n, const std::filesystem::path& output, const std::string& advice) const;
  /// Fills positions with zeros, splits the rows at random and computes the moments.
  void finish(EmulatorSet& set, std::size_t n) const;
};

/// Columns with these short names and their CF names. `units` may be empty.
ColumnNames known_names(const std::vector<std::string>& names, const std::vector<std::string>& units = {});

}  // namespace lockstep::prep
