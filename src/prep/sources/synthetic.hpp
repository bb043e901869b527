#pragma once
#include "lockstep/prep/emulator_set.hpp"

namespace lockstep {
class Options;
}

namespace lockstep::prep {

/// What the generators share: how many rows, how they are split, whether the true Jacobian is stored.
struct Synthetic {
  std::int64_t rows = 0;
  std::uint64_t seed = 0;
  double validation_split = 0.1, test_split = 0.1;
  bool jacobian = true;

  enum class Rows : std::uint8_t { option, derived };
  Synthetic(Options& options, std::int64_t default_rows, Rows kind = Rows::option, bool default_jacobian = true);
  /// Gives the rows their places (none), splits them at random and takes the moments.
  void finish(EmulatorSet& set, std::size_t n) const;
};

/// Names with the CF names and units that belong to them.
ColumnNames known_names(const std::vector<std::string>& names);

}  // namespace lockstep::prep
