#pragma once
#include <string>
#include <vector>

#include "lockstep/prep/selection.hpp"

namespace lockstep::prep {

/// The inputs and the output that the field's usual emulator has.
inline const std::vector<std::string> kDefaultInputs = {"sst",  "sss",  "tair", "tsfc", "hi",   "hs",    "sice",
                                                        "uocn", "vocn", "uatm", "vatm", "qref", "flwdn", "fswdn"};
inline const std::vector<std::string> kDefaultOutputs = {"aice"};

/// --input and --output, which every source has, and the last step that they share.
struct Common {
  std::vector<std::string> input;
  std::string output;
  bool quiet = false;

  enum class Input : std::uint8_t { files, none };
  explicit Common(Options& options, Input kind = Input::files);
  /// Selects rows, writes the file and says what became of the points.
  void write(const Candidates& candidates, const Selection& selection) const;
  /// Writes a finished set.
  void write(const EmulatorSet& set) const;
};

}  // namespace lockstep::prep
