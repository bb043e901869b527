#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {
class Options;
}

namespace lockstep::prep {

/// The options --input (where `kind` is files), --output and --quiet.
struct SourceOptions {
  std::vector<std::string> input;
  std::string output;
  bool quiet = false;

  enum class Input : std::uint8_t { files, none };
  explicit SourceOptions(Options& options, Input kind = Input::files);
  /// Prints name and size of the written file.
  void print_written() const;
};

}  // namespace lockstep::prep
