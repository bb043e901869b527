#include <cmath>

#include "lockstep/prep/hrm/maze.hpp"
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
      "A table has the header source,question,answer,rating, or other names of these columns; source and rating may be "
      "absent. Question and answer are the cells row by row: '#' wall, "
      "blank, S start, G goal, o path (answers only).");
  bool aug = false;
  const PuzzleTables tables(options, "mazes");
  options.add("aug", &aug, false, "add the seven rotated and mirrored images to each training group");
  PuzzleOptions common(options, 0, PuzzleOptions::Augment::option);
  common.add_val(
      options,
      "number of validation puzzles, drawn from the training table (with subsample-size: from its unused rows)");
  options.example("lockstep-prep maze --train train.csv --test test.csv --aug --output maze.h5",
                  "eight puzzles per training group");
  if (!options.parse(args)) return false;
  tables.write(common, parse_solved_maze, -1, maze_set, aug ? 7 : 0);
  return true;
}

}  // namespace lockstep::prep
