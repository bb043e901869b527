#include "tasks/hrm/puzzle_rules.hpp"

#include <cmath>
#include <map>
#include <tuple>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/samples/maze.hpp"

namespace lockstep {

std::string sudoku_violation(std::span<const std::int32_t> grid) {
  const auto side = static_cast<std::int64_t>(std::lround(std::sqrt(static_cast<double>(grid.size()))));
  const auto box = static_cast<std::int64_t>(std::lround(std::sqrt(static_cast<double>(side))));
  std::map<std::tuple<int, std::int64_t, std::int32_t>, int> seen;
  for (std::int64_t i = 0; i < side * side; ++i) {
    const std::int32_t token = grid[i];
    if (token < 2) continue;
    const std::int64_t row = i / side, column = i % side;
    const char* names[] = {"row ", "column ", "box "};
    const std::int64_t units[] = {row, column, row / box * box + column / box};
    for (int k = 0; k < 3; ++k)
      if (++seen[{k, units[k], token}] > 1) return join("digit ", token - 1, " twice in ", names[k], units[k] + 1);
  }
  return "";
}

namespace {
std::string maze_defect(std::span<const std::int32_t> puzzle, std::span<const std::int32_t> answer) {
  const auto side = static_cast<int>(std::lround(std::sqrt(static_cast<double>(puzzle.size()))));
  const std::vector<std::uint8_t> question(puzzle.begin(), puzzle.end()), path(answer.begin(), answer.end());
  const MazeReport report = inspect_maze(side, question, path);
  if (!report.defect.empty() || report.steps == report.shortest) return report.defect;
  return join("a path of ", report.steps, " steps; the shortest has ", report.shortest);
}
}  // namespace

std::string puzzle_defect(const std::string& task, std::span<const std::int32_t> puzzle,
                          std::span<const std::int32_t> answer) {
  if (task == "maze") return maze_defect(puzzle, answer);
  std::string defect = sudoku_violation(answer);
  for (std::size_t c = 0; c < puzzle.size() && defect.empty(); ++c) {
    const std::int32_t given = puzzle[c], now = answer[c];
    if (now < 2) defect = join("cell ", c + 1, " is empty");
    if (given >= 2 && given != now) defect = join("given cell ", c + 1, " was changed");
  }
  return defect;
}

}  // namespace lockstep
