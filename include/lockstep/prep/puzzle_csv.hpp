#pragma once
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/prep/puzzle_set.hpp"

namespace lockstep::prep {

/// One row of a puzzle table with header `source,question,answer,rating`, columns in any order; source and rating may be absent.
struct PuzzleRow {
  std::string where;  ///< "train.csv:17", for messages
  std::string source, question, answer;
  std::optional<std::int32_t> rating;
};
/// Calls `use` for each row. Fields may be quoted; line ends may be CR LF; empty lines are passed over.
/// errors  data: a missing column, a wrong number of fields, an unclosed quote, a rating that is no number: named by file and line
void read_puzzle_csv(std::istream& in, const std::string& file, const std::function<void(const PuzzleRow&)>& use);

/// Base puzzles of a split as tokens, one after another.
struct BasePuzzles {
  std::vector<std::uint8_t> inputs, labels;
  std::vector<std::int32_t> rating;  ///< one per puzzle, or empty when the table has none
  std::vector<std::string> source;   ///< one per puzzle, or empty
  std::int64_t cells = 0;            ///< per grid; 0 before the first puzzle
  std::int64_t size() const { return cells == 0 ? 0 : static_cast<std::int64_t>(inputs.size()) / cells; }
  /// Adds one. errors  data: another number of cells than the puzzles before it
  void add(const PuzzleRow& row, const std::vector<std::uint8_t>& question, const std::vector<std::uint8_t>& answer);
  /// These rows in this order.
  BasePuzzles picked(const std::vector<std::int64_t>& rows) const;
};

/// Tokens of a row: blank (`.` or `0`) 1, digit + 1. errors  data: a wrong length, another character, a digit twice in a unit, an answer that
/// does not extend the question or is not complete
void parse_sudoku(const PuzzleRow& row, std::vector<std::uint8_t>& question, std::vector<std::uint8_t>& answer);
/// Tokens 1 .. 5 of `# SGo`. errors  data: a length that is no square, another character, a path cell in the question
void parse_maze(const PuzzleRow& row, std::vector<std::uint8_t>& question, std::vector<std::uint8_t>& answer);

/// What a puzzle file needs beside its puzzles.
PuzzleSet sudoku_set(std::int64_t cells);
PuzzleSet maze_set(std::int64_t cells);
/// Adds the parts of these puzzles to `set`, whose task, seed, num_aug and online are set: variants go to train only.
void add_base_puzzles(PuzzleSet& set, BasePuzzles train, BasePuzzles test);

}  // namespace lockstep::prep
