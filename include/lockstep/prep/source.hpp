#pragma once
#include <span>
#include <string>
#include <vector>

namespace lockstep::prep {

using Args = std::vector<std::string>;

/// Parses the arguments after the name, reads and writes. Returns false if the arguments only asked for help.
using SourceFunction = bool(const Args& args);
/// A kind of raw data: `lockstep-prep NAME --input ... --output FILE.h5`. A new source is a file
/// src/prep/<kind>/<name>_source.cpp, its name below and a line in src/prep/source.cpp.
struct Source {
  const char* name;
  const char* summary;
  SourceFunction* run;
};
std::span<const Source> sources();

SourceFunction run_arc, run_cf_pair, run_cice_history, run_hapt_raw, run_har, run_hrm_npy, run_kg, run_maze, run_netcdf,
    run_sequences, run_sudoku, run_synth_har, run_synth_icecolumn, run_synth_kg, run_synth_lorenz96,
    run_synth_lorenz96_two_scale, run_synth_maze, run_synth_sequences, run_synth_sudoku, run_uci_har;

}  // namespace lockstep::prep
