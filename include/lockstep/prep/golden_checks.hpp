#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::prep {

/// One compared array: max|a-b| / max|b| against the tolerance.
struct GoldenRow {
  std::string tensor;
  double error = 0, tolerance = 0;
  std::string note;  ///< why it could not be compared; "" otherwise
  bool holds() const { return note.empty() && error <= tolerance; }
};

/// Which reference file this is, by its content.
enum class GoldenKind : std::uint8_t { prep, synth, moments, line_plot, kg, puzzles, sequences, other };
GoldenKind golden_kind(const std::filesystem::path& golden);

/// Reads the companions of a reference file (raw NetCDF, named by its groups and beside it) with the readers of this library and
/// compares rows, order and moments. Inputs, targets, places: exact in f32. Moments 2e-6: the reference sums in f32.
std::vector<GoldenRow> check_golden_prep(const std::filesystem::path& golden);
/// Evaluates the generators at the reference's inputs: values and Jacobians, tangents, adjoints to 1e-12.
std::vector<GoldenRow> check_golden_synth(const std::filesystem::path& golden);
/// Mean and standard deviation of the raw rows that come with a network's reference file (/moments). 2e-6: the reference sums in f32.
std::vector<GoldenRow> check_golden_moments(const std::filesystem::path& golden);
/// Draws the sequences of a reference of line pictures: columns and pixels, exact; the error is the number of those that differ.
std::vector<GoldenRow> check_golden_line_plot(const std::filesystem::path& golden);
/// Reads the raw texts that a KGAT reference file holds: sizes and triples of the graph exact, initial values 1e-6.
std::vector<GoldenRow> check_golden_kg(const std::filesystem::path& golden);
/// Builds the reference's Sudoku, mazes and ARC fields from its tables and recorded draws, and the dihedral images: all exact. The
/// group `sampler` belongs to whoever reads prepared files, not to this library.
std::vector<GoldenRow> check_golden_puzzles(const std::filesystem::path& golden);
/// Filter, numbers, order, scaled times, splits, training windows and relation matrices of a reference of interactions: all exact.
std::vector<GoldenRow> check_golden_sequences(const std::filesystem::path& golden);
/// The one that fits. errors  data: no known kind
std::vector<GoldenRow> check_golden(const std::filesystem::path& golden);

}  // namespace lockstep::prep
