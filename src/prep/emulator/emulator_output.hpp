#pragma once
#include <string>
#include <vector>

#include "lockstep/prep/emulator/selection.hpp"
#include "prep/source_options.hpp"

namespace lockstep::prep {

/// Columns of the usual sea-ice emulator.
inline const std::vector<std::string> kDefaultInputs = {"sst",  "sss",  "tair", "tsfc", "hi",   "hs",    "sice",
                                                        "uocn", "vocn", "uatm", "vatm", "qref", "flwdn", "fswdn"};
inline const std::vector<std::string> kDefaultOutputs = {"aice"};

/// Selects rows, writes the file and reports the number of points after each step.
void write_selected(SourceOptions& common, Candidates candidates, const Selection& selection);
/// Writes a finished set and reports its number of rows.
void write_generated(SourceOptions& common, EmulatorSet& set);

}  // namespace lockstep::prep
