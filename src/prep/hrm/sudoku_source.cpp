#include "lockstep/prep/hrm/sudoku.hpp"
#include "prep/hrm/puzzle_options.hpp"

namespace lockstep::prep {

namespace {
void parse_unique(const PuzzleRow& row, std::vector<std::uint8_t>& question, std::vector<std::uint8_t>& answer) {
  parse_sudoku(row, question, answer);
  SudokuGrid digits = question;
  for (auto& digit : digits) --digit;
  const int solutions = solve_sudoku(sudoku_order(digits.size()), digits).count;
  require_data(solutions == 1, "reading ", row.where, ": the question has more than one solution");
}
}  // namespace

bool run_sudoku(const Args& args) {
  Options options(
      "lockstep-prep sudoku", "Sudoku puzzles of order 3 (9x9) or 2 (4x4) from tables.",
      "A table has the header source,question,answer,rating, or other names of these columns; source and rating may be "
      "absent. Question and answer are the cells row by row, a blank is '.' or '0'. A file without a header, as lists "
      "of hard Sudokus are, has a question per line, which is solved, or a question and its answer. Each puzzle is one "
      "group; a training group also holds num-aug variants under the symmetries.");
  std::int64_t minimum = 0, num_aug = 0;
  bool unique = false;
  const PuzzleTables tables(options, "puzzles");
  options.add("min-difficulty", &minimum, std::int64_t{-1}, at_least(-1),
              "keep puzzles of at least this rating, in both tables; -1 keeps all");
  options.add("num-aug", &num_aug, std::int64_t{0}, between(0, 1e6), "variants of each training puzzle");
  options.add("require-unique", &unique, false, "solve every puzzle; a second solution is an error");
  PuzzleOptions common(options, 0, PuzzleOptions::Augment::option);
  common.add_val(
      options,
      "number of validation puzzles, drawn from the training table (with subsample-size: from its unused rows)");
  options.example(
      "lockstep-prep sudoku --train train.csv --test test.csv --subsample-size 1000 --num-aug 1000 --output sudoku.h5",
      "1000 groups, 1001000 puzzles, the whole test table");
  options.example("lockstep-prep sudoku --train train.csv --num-aug 1000 --augment online --output sudoku.h5",
                  "training draws the variants");
  if (!options.parse(args)) return false;
  tables.write(common, unique ? parse_unique : parse_sudoku, minimum, sudoku_set, num_aug,
               {{"min_difficulty", minimum}});
  return true;
}

}  // namespace lockstep::prep
