#pragma once
#include "lockstep/io/h5.hpp"
#include "lockstep/io/reference_report.hpp"

namespace lockstep::prep {

/// Recomputes the parts of a reference file that belong to data preparation. A file without such a part gives no rows.
ReferenceReport verify_reference(const H5File& golden);

/// Reads the raw NetCDF files that the groups of a reference name, which lie beside it, and compares rows, order and
/// moments. Inputs, targets and positions are exact in f32; moments to 2e-6, since the reference sums in f32.
void verify_emulator_rows(const H5File& golden, ReferenceReport& report);
/// Evaluates the generators at the reference's inputs: values, Jacobians, tangents and adjoints, to 1e-12.
void verify_generators(const H5File& golden, ReferenceReport& report);
/// Mean and standard deviation of the raw rows in a network's reference file (/moments), to 2e-6: the reference sums in
/// f32.
void verify_moments(const H5File& golden, ReferenceReport& report);
/// Draws the sequences of a reference of line pictures: columns and pixels, exact.
void verify_line_plots(const H5File& golden, ReferenceReport& report);
/// Reads the raw texts in a KGAT reference file: sizes and triples of the graph exact, initial values to 1e-6.
void verify_kg_graph(const H5File& golden, ReferenceReport& report);
/// Builds the reference's Sudoku, mazes, ARC fields and dihedral images from its tables and recorded draws, all exact.
/// The group `sampler` belongs to the layer that reads prepared files.
void verify_puzzles(const H5File& golden, ReferenceReport& report);
/// Filter, numbers, order, scaled times, splits, training windows and relation matrices of interactions, all exact.
void verify_sequences(const H5File& golden, ReferenceReport& report);

}  // namespace lockstep::prep
