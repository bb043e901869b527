#pragma once
#include <span>
#include <string>
#include <vector>

namespace lockstep::prep {

using Args = std::vector<std::string>;

/// A kind of raw data: `lockstep-prep NAME --input ... --output FILE.h5`. A new source is a file
/// src/prep/<kind>/<name>_source.cpp and a line in src/prep/source.cpp.
struct Source {
  const char* name;
  const char* summary;
  /// Parses the arguments after the name, reads and writes. Returns false if the arguments only asked for help.
  bool (*run)(const Args& args);
};
std::span<const Source> sources();

bool run_arc(const Args& args);
bool run_cf_pair(const Args& args);
bool run_cice_history(const Args& args);
bool run_hapt_raw(const Args& args);
bool run_har(const Args& args);
bool run_hrm_npy(const Args& args);
bool run_kg(const Args& args);
bool run_maze(const Args& args);
bool run_netcdf(const Args& args);
bool run_sequences(const Args& args);
bool run_sudoku(const Args& args);
bool run_synth_har(const Args& args);
bool run_synth_icecolumn(const Args& args);
bool run_synth_kg(const Args& args);
bool run_synth_lorenz96(const Args& args);
bool run_synth_lorenz96_two_scale(const Args& args);
bool run_synth_maze(const Args& args);
bool run_synth_sequences(const Args& args);
bool run_synth_sudoku(const Args& args);
bool run_uci_har(const Args& args);

}  // namespace lockstep::prep
