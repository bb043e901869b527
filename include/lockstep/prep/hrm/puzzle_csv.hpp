#pragma once
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/prep/hrm/puzzle_set.hpp"

namespace lockstep::prep {

/// One row of a puzzle table.
struct PuzzleRow {
  std::string where;  ///< "train.csv:17", for messages
  std::string source, question, answer;
  std::optional<std::int32_t> rating;
};
/// The columns of a puzzle table by the names in its header; "": the usual names.
struct PuzzleColumns {
  std::string question, answer, rating;
};
/// Which columns were used, and the others.
struct PuzzleHeader {
  std::string used, left_aside;  ///< "question = puzzle, answer = solution"; "id, clues"
};
/// Calls `use` for each row of a table with a header, whose columns may have any order; source and rating may be
/// absent. Columns are separated by commas, semicolons or tabs, as the header is. Fields may be quoted; blanks around
/// names, sources and ratings are removed; lines may end with CR LF; empty lines are skipped, and so are lines that
/// begin with # before the header. With `lists`, a file whose first line is a Sudoku has no header: its lines are
/// questions, or questions and answers.
/// errors  data, with file and line: a missing column, a wrong number of fields, an unclosed quote, a rating that is
///         not a number
PuzzleHeader read_puzzle_csv(std::istream& in, const std::string& file, const PuzzleColumns& columns, bool lists,
                             const std::function<void(const PuzzleRow&)>& use);

/// Tokens of the base puzzles of a split.
struct BasePuzzles {
  std::vector<std::uint8_t> inputs, labels;
  std::vector<std::int32_t> rating;  ///< one per puzzle; empty when the table has none
  std::vector<std::string> source;   ///< one per puzzle, or empty
  std::int64_t cells = 0;            ///< per grid; 0 before the first puzzle
  std::int64_t repeated = 0;         ///< rows of the table that equal an earlier one
  std::int64_t disputed = 0;         ///< rows with another answer to the question of an earlier one
  std::int64_t restored = 0;         ///< questions that had lost zeros at their start
  std::int64_t solved = 0;           ///< answers that the table does not have
  std::int64_t size() const { return cells == 0 ? 0 : static_cast<std::int64_t>(inputs.size()) / cells; }
  /// Adds a puzzle. errors  data: another number of cells than the first puzzle has
  void add(const PuzzleRow& row, const std::vector<std::uint8_t>& question, const std::vector<std::uint8_t>& answer);
  /// These rows in this order.
  BasePuzzles picked(const std::vector<std::int64_t>& rows) const;
};

/// Tokens of a row: 1 for a blank (`.` or `0`), digit + 1. Blanks around question and answer are removed. Zeros that a
/// spreadsheet has removed from the start of the question are restored if the answer fits. A question without an answer
/// is solved.
/// errors  data: a wrong length, another character, a digit twice in a unit, an answer that is incomplete or does not
///         extend the question, none and not exactly one solution
void parse_sudoku(const PuzzleRow& row, std::vector<std::uint8_t>& question, std::vector<std::uint8_t>& answer);
/// Tokens 1 .. 5 of `# SGo`. errors  data: a length that is not a square, another character, a path cell in the
/// question
void parse_maze(const PuzzleRow& row, std::vector<std::uint8_t>& question, std::vector<std::uint8_t>& answer);

/// A set without puzzles: task, sizes and vocabulary.
PuzzleSet sudoku_set(std::int64_t cells);
PuzzleSet maze_set(std::int64_t cells);
/// Adds these puzzles to `set`, whose task, seed, num_aug and online must be final. Only training puzzles get variants.
void add_base_puzzles(PuzzleSet& set, BasePuzzles train, BasePuzzles test, BasePuzzles val = {});

}  // namespace lockstep::prep
