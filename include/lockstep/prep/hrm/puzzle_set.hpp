#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "lockstep/io/dataset_file.hpp"
#include "lockstep/samples/puzzle_variant.hpp"

namespace lockstep::prep {

/// One named set of puzzles of a split. It has groups of puzzles, and a puzzle has examples: rows of inputs and labels.
struct PuzzlePart {
  std::string name = "all";
  std::int64_t rows = 0;                           ///< N examples
  std::vector<std::int64_t> puzzle_indices = {0};  ///< [P+1], first example of each puzzle
  std::vector<std::int64_t> group_indices = {0};   ///< [G+1], first puzzle of each group
  std::vector<std::int32_t> puzzle_identifiers;    ///< [P]
  std::vector<std::int32_t> rating,
      source;  ///< [G], or empty; source is an index into PuzzleSet::source_names
  /// Writes the tokens of an example to spans of seq_len. Called with ascending rows.
  std::function<void(std::int64_t row, std::span<std::uint8_t> inputs, std::span<std::uint8_t> labels)> tokens;

  std::int64_t puzzles() const { return static_cast<std::int64_t>(puzzle_indices.size()) - 1; }
  std::int64_t groups() const { return static_cast<std::int64_t>(group_indices.size()) - 1; }
};

/// A puzzle data set as data/README.md describes it. Tokens are made or read on demand.
struct PuzzleSet {
  PuzzleTask task = PuzzleTask::sudoku;
  bool online = false;       ///< training draws the variants; train holds base puzzles only
  std::int64_t num_aug = 0;  ///< variants of each training puzzle besides itself
  std::uint64_t seed = 0;
  std::int64_t seq_len = 0, vocab_size = 0;
  std::int64_t pad_id = 0, ignore_label_id = 0, blank_identifier_id = 0;  ///< ignore_label_id -1: none
  std::vector<std::string> identifiers = {"<blank>"};                     ///< [num_puzzle_identifiers]
  std::vector<PuzzlePart> train, test;
  std::vector<PuzzlePart> val;               ///< empty, or as many puzzles as were asked for
  std::vector<std::string> sources, sha256;  ///< names and checksums of the raw files
  std::vector<std::string> source_names;     ///< indexed by PuzzlePart::source
  DatasetNotes notes;                        ///< further attributes: how the puzzles were chosen
};

/// The names of the tasks, in the order of PuzzleTask.
inline const std::vector<std::string> kPuzzleTasks = {"sudoku", "maze", "arc"};
inline const std::string& name(PuzzleTask task) { return kPuzzleTasks[static_cast<std::size_t>(task)]; }
/// Sums over the sets of a split.
struct PuzzleTotals {
  std::int64_t groups = 0, puzzles = 0, rows = 0;
  explicit PuzzleTotals(const std::vector<PuzzlePart>& parts);
  /// Examples of a puzzle; 0 without puzzles.
  double mean() const { return puzzles == 0 ? 0 : static_cast<double>(rows) / static_cast<double>(puzzles); }
};

/// Writes the file atomically; `deflate`: 0 .. 9. errors  internal: the disk is full; usage: not writable
void write_puzzle_set(const std::filesystem::path& path, const PuzzleSet& set, int deflate);
/// Reads everything but the tokens; PuzzlePart::tokens reads those from `file`, which must outlive the set. The index
/// arrays are unchecked. errors  data: not of this format, a dataset missing or of another shape or type
PuzzleSet read_puzzle_set(const H5File& file, std::vector<std::string>* problems = nullptr);

/// Problems of a prepared file, one line each: schema, index arrays, identifiers, tokens, totals, checksums, and
/// answers: a valid Sudoku that extends its question, a path from start to goal, grids with their end markers.
std::vector<std::string> check_puzzle_set(const H5File& file, std::vector<std::string>& remarks);
/// Remarks on ARC tasks that a set holds under two names, and on tests that are also training examples.
std::vector<std::string> arc_repeats(const PuzzleSet& set);
/// Prints a page about a prepared file: groups, puzzles, ratings, origin, and one puzzle.
void describe_puzzle_set(const H5File& file, std::ostream& out);

}  // namespace lockstep::prep
