#pragma once
#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "lockstep/io/h5.hpp"

namespace lockstep {
class Options;
}

namespace lockstep::prep {

using Args = std::vector<std::string>;

/// One kind of raw data: `lockstep-prep NAME --input ... --output FILE.h5`. A new one is a file in src/prep/sources and a line in
/// src/prep/source.cpp.
struct Source {
  const char* name;
  const char* summary;
  /// Parses the words after the name, reads, writes. False when only --help was asked for. errors  as Error
  bool (*run)(const Args& args);
};
std::span<const Source> sources();

/// One kind of prepared file, known by its attribute `format`.
struct Format {
  const char* format;
  /// What is wrong with the file, a line each; remarks are no errors.
  std::vector<std::string> (*check)(const H5File& file, std::vector<std::string>& remarks);
  void (*describe)(const H5File& file, std::ostream& out);
};
/// errors  data: a file without `format`, or with one that nobody knows
const Format& format_of(const H5File& file);
/// That a file is of this format and version; returns "reading 'PATH'", the beginning of every message about it.
/// errors  data: no format, another one, or another version
std::string require_format(const H5File& file, const std::string& format, std::int64_t version);

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
