#include "lockstep/base/error.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/prep/hrm/puzzle_division.hpp"
#include "lockstep/prep/hrm/sudoku.hpp"
#include "lockstep/prep/source.hpp"
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
      "A table has the header source,question,answer,rating; question and answer are the cells row by row, a blank is "
      "'.' or '0'. Each puzzle is one group; a training group also holds num-aug variants under the symmetries.");
  std::string train, test;
  std::int64_t subsample = 0, minimum = 0, num_aug = 0;
  bool unique = false;
  options.add("train", &train, "", "table of training puzzles").value_name("FILE.csv").required();
  options.add("test", &test, "", "table of test puzzles").value_name("FILE.csv");
  options.add("subsample-size", &subsample, std::int64_t{0}, non_negative,
              "training puzzles to keep, at random; 0 keeps all");
  options.add("min-difficulty", &minimum, std::int64_t{-1}, at_least(-1),
              "keep puzzles of at least this rating, in both tables; -1 keeps all");
  options.add("num-aug", &num_aug, std::int64_t{0}, between(0, 1e6), "variants of each training puzzle");
  options.add("require-unique", &unique, false, "solve every puzzle; a second solution is an error");
  PuzzleOptions common(options, 0, PuzzleOptions::Augment::option);
  common.add_val(options,
                 "validation puzzles, drawn from the training table: from what subsample-size leaves, if it is given");
  options.example(
      "lockstep-prep sudoku --train train.csv --test test.csv --subsample-size 1000 --num-aug 1000 --output sudoku.h5",
      "1000 groups, 1001000 puzzles, the whole test table");
  options.example("lockstep-prep sudoku --train train.csv --num-aug 1000 --augment online --output sudoku.h5",
                  "the variants are made while training");
  if (!options.parse(args)) return false;
  require_writable(common.output, {train, test});

  const PuzzleParser parse = unique ? parse_unique : parse_sudoku;
  const BasePuzzles table = read_puzzles(train, parse, minimum);
  BasePuzzles tested = read_puzzles(test, parse, minimum);
  common.note_repeated(table, train);
  common.note_repeated(tested, test);
  PuzzleSet set = sudoku_set(common_cells(table, tested, train, test));
  DividedPuzzles kept =
      divide_puzzles(table, tested, {.task = set.task, .train = subsample, .val = common.val, .seed = common.seed});
  common.apply(set);
  set.num_aug = num_aug;
  set.notes = {{"subsample_size", subsample}, {"min_difficulty", minimum}};
  add_source_file(set, train);
  add_source_file(set, test);
  add_base_puzzles(set, std::move(kept.train), std::move(tested), std::move(kept.val));
  common.write(set);
  return true;
}

}  // namespace lockstep::prep
