#include "lockstep/prep/source.hpp"

#include <array>

#include "lockstep/base/error.hpp"
#include "lockstep/prep/emulator_set.hpp"
#include "lockstep/prep/har_set.hpp"
#include "lockstep/prep/kg_set.hpp"
#include "lockstep/prep/puzzle_set.hpp"
#include "lockstep/prep/sequence_set.hpp"

namespace lockstep::prep {

std::span<const Source> sources() {
  static constexpr std::array kSources = {
      Source{"arc", "puzzles: ARC tasks in JSON", run_arc},
      Source{"cf-pair", "emulator: an atmosphere and an ocean file with CF names on a latitude-longitude grid",
             run_cf_pair},
      Source{"cice-history", "emulator: columns of sea-ice history files (CICE)", run_cice_history},
      Source{"hapt-raw", "har: raw recordings of the HAPT data set, filtered and cut into windows", run_hapt_raw},
      Source{"har", "har: windows of any sensor recordings, listed in a manifest", run_har},
      Source{"hrm-npy", "puzzles: a folder of NumPy files that the HRM repository's builders wrote", run_hrm_npy},
      Source{"kg", "kgat: interactions and a knowledge graph in the KGAT text format", run_kg},
      Source{"maze", "puzzles: square mazes from tables", run_maze},
      Source{"netcdf", "emulator: columns of any NetCDF files, by name", run_netcdf},
      Source{"sequences", "sequences: who took which item when; MovieLens, text files of pairs and triples, CSV",
             run_sequences},
      Source{"sudoku", "puzzles: Sudoku from tables", run_sudoku},
      Source{"synth-har", "har: made-up activities of made-up subjects", run_synth_har},
      Source{"synth-icecolumn", "emulator: made-up sea-ice columns whose physics and Jacobian are known",
             run_synth_icecolumn},
      Source{"synth-kg", "kgat: made-up preferences that only the graph reveals, or a graph of a given size",
             run_synth_kg},
      Source{"synth-lorenz96", "emulator: one time step of the Lorenz 96 model, with its Jacobian", run_synth_lorenz96},
      Source{"synth-lorenz96-two-scale", "emulator: the two-scale Lorenz 96 model, its parametrisation or a time step",
             run_synth_lorenz96_two_scale},
      Source{"synth-maze", "puzzles: made-up mazes and the shortest way through them", run_synth_maze},
      Source{"synth-sequences",
             "sequences: made-up sessions whose next item depends on the pause before the current one",
             run_synth_sequences},
      Source{"synth-sudoku", "puzzles: made-up Sudoku with one solution each", run_synth_sudoku},
      Source{"uci-har", "har: windows of the UCI HAR data set, in its published layout", run_uci_har},
  };
  return kSources;
}

const Format& format_of(const H5File& file) {
  static constexpr std::array kFormats = {
      Format{"hrm-puzzles", check_puzzle_set, describe_puzzle_set},
      Format{"lockstep-emulator-data", check_emulator_set, describe_emulator_set},
      Format{"lockstep-har", check_har_set, describe_har_set},
      Format{"lockstep-kgat", check_kg_set, describe_kg_set},
      Format{"lockstep-seqrec", check_sequence_set, describe_sequence_set},
  };
  require_data(file.has_attribute("/", "format"), "reading '", file.path().string(),
               "': no attribute 'format'; lockstep-prep did not write it");
  const std::string found = file.text_attribute("/", "format");
  for (const Format& format : kFormats) {
    if (found == format.format) return format;
  }
  throw Error(Fault::data, join("reading '", file.path().string(), "': format '", found,
                                "' is no prepared data set that this program knows"));
}

std::string require_format(const H5File& file, const std::string& format, std::int64_t version) {
  std::string reading = "reading '" + file.path().string() + "'";
  require_data(file.has_attribute("/", "format"), reading,
               ": no attribute 'format'; it was not written by lockstep-prep");
  const std::string found = file.text_attribute("/", "format");
  require_data(found == format, reading, ": expected format '", format, "', found '", found, "'");
  const std::int64_t written = file.int_attribute("/", "version");
  require_data(written == version, reading, ": format version ", written, ", this program reads ", version);
  return reading;
}

}  // namespace lockstep::prep
