#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/options.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/prep/files.hpp"
#include "lockstep/prep/source.hpp"
#include "lockstep/prep/summary.hpp"

namespace lockstep {
struct InteractionOptions;
}

namespace lockstep::prep {

/// The options --input (where `kind` is files), --output, --strict and --quiet, and what the source understood.
struct SourceOptions {
  std::vector<std::string> input;
  std::string output;
  bool strict = false, quiet = false;
  Summary summary;

  enum class Input : std::uint8_t { files, none };
  explicit SourceOptions(Options& options, Input kind = Input::files);
  /// The last look before the file is written: see Summary::settle().
  void settle(DatasetNotes& notes) const { summary.settle(strict, notes); }
  /// Prints the summary, and name and size of the written file, unless --quiet.
  void print_written();
};

/// The options that say how InteractionFile reads a table, such as --columns and --where.
void add_interaction_options(Options& options, InteractionOptions& table);

}  // namespace lockstep::prep
