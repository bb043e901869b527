#include "lockstep/prep/source.hpp"

#include <array>

namespace lockstep::prep {

std::span<const Source> sources() {
  static constexpr std::array kSources = {
      Source{"arc", "puzzles: ARC tasks in JSON", run_arc},
      Source{"cf-pair", "emulator: an atmosphere and an ocean file with CF names on a latitude-longitude grid",
             run_cf_pair},
      Source{"cice-history", "emulator: columns of sea-ice history files (CICE)", run_cice_history},
      Source{"hapt-raw", "har: raw recordings of the HAPT data set, filtered and cut into windows", run_hapt_raw},
      Source{"har", "har: windows of any sensor recordings, listed in a manifest", run_har},
      Source{"hrm-npy", "puzzles: a folder of NumPy files that the builders of HRM or TRM wrote", run_hrm_npy},
      Source{"kg", "kgat: interactions and a knowledge graph in the KGAT text format", run_kg},
      Source{"maze", "puzzles: square mazes from tables", run_maze},
      Source{"netcdf", "emulator: columns of any NetCDF files, by name", run_netcdf},
      Source{"sequences", "sequences: interactions in time; MovieLens, text files of pairs and triples, CSV",
             run_sequences},
      Source{"sudoku", "puzzles: Sudoku from tables", run_sudoku},
      Source{"synth-har", "har: synthetic activities", run_synth_har},
      Source{"synth-icecolumn", "emulator: synthetic sea-ice columns whose physics and Jacobian are known",
             run_synth_icecolumn},
      Source{"synth-kg", "kgat: synthetic preferences that only the graph reveals, or a graph of a given size",
             run_synth_kg},
      Source{"synth-lorenz96", "emulator: one time step of the Lorenz 96 model, with its Jacobian", run_synth_lorenz96},
      Source{"synth-lorenz96-two-scale", "emulator: the two-scale Lorenz 96 model, its parametrisation or a time step",
             run_synth_lorenz96_two_scale},
      Source{"synth-maze", "puzzles: synthetic mazes with their shortest paths", run_synth_maze},
      Source{"synth-sequences",
             "sequences: synthetic sessions whose next item depends on the pause before the current one",
             run_synth_sequences},
      Source{"synth-sudoku", "puzzles: synthetic Sudoku with one solution each", run_synth_sudoku},
      Source{"uci-har", "har: windows of the UCI HAR data set, in its published layout", run_uci_har},
  };
  return kSources;
}

}  // namespace lockstep::prep
