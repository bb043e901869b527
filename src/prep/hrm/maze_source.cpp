#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/prep/hrm/maze.hpp"
#include "lockstep/prep/hrm/puzzle_division.hpp"
#include "lockstep/prep/source.hpp"
#include "prep/hrm/puzzle_options.hpp"

namespace lockstep::prep {

namespace {
void parse_solved_maze(const PuzzleRow& row, std::vector<std::uint8_t>& question, std::vector<std::uint8_t>& answer) {
  parse_maze(row, question, answer);
  const int side = static_cast<int>(std::lround(std::sqrt(static_cast<double>(question.size()))));
  const MazeReport report = inspect_maze(side, question, answer);
  require_data(report.defect.empty(), "reading ", row.where, ": ", report.defect);
}
}  // namespace

bool run_maze(const Args& args) {
  Options options(
      "lockstep-prep maze", "Square mazes with their paths, from tables.",
      "A table has the header source,question,answer,rating; question and answer are the cells row by row: '#' wall, "
      "blank, S start, G goal, o path (answers only).");
  std::string train, test;
  std::int64_t subsample = 0;
  bool aug = false;
  options.add("train", &train, "", "table of training mazes").value_name("FILE.csv").required();
  options.add("test", &test, "", "table of test mazes").value_name("FILE.csv");
  options.add("subsample-size", &subsample, std::int64_t{0}, non_negative,
              "training mazes to keep, at random; 0 keeps all");
  options.add("aug", &aug, false, "add the seven rotated and mirrored images to each training group");
  PuzzleOptions common(options, 0, PuzzleOptions::Augment::option);
  common.add_val(options,
                 "validation puzzles, drawn from the training table: from what subsample-size leaves, if it is given");
  options.example("lockstep-prep maze --train train.csv --test test.csv --aug --output maze.h5",
                  "eight puzzles per training group");
  if (!options.parse(args)) return false;
  require_writable(common.output, {train, test});

  const BasePuzzles table = read_puzzles(train, parse_solved_maze, -1);
  BasePuzzles tested = read_puzzles(test, parse_solved_maze, -1);
  common.note_repeated(table, train);
  common.note_repeated(tested, test);
  PuzzleSet set = maze_set(common_cells(table, tested, train, test));
  DividedPuzzles kept =
      divide_puzzles(table, tested, {.task = set.task, .train = subsample, .val = common.val, .seed = common.seed});
  common.apply(set);
  set.num_aug = aug ? 7 : 0;
  set.notes = {{"subsample_size", subsample}};
  add_source_file(set, train);
  add_source_file(set, test);
  add_base_puzzles(set, std::move(kept.train), std::move(tested), std::move(kept.val));
  common.write(set);
  return true;
}

}  // namespace lockstep::prep
