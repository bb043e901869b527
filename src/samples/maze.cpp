#include "lockstep/samples/maze.hpp"

#include <algorithm>

#include "lockstep/base/error.hpp"

namespace lockstep {

namespace {

std::vector<std::int32_t> breadth_first(int side, std::size_t from, std::size_t cells, auto passable) {
  std::vector<std::int32_t> steps(cells, -1);
  std::vector<std::size_t> queue = {from};
  steps[from] = 0;
  for (std::size_t head = 0; head < queue.size(); ++head) {
    const std::size_t cell = queue[head];
    around_cell(side, cell, [&](std::size_t next) {
      if (steps[next] >= 0 || !passable(next)) return;
      steps[next] = steps[cell] + 1;
      queue.push_back(next);
    });
  }
  return steps;
}

}  // namespace

std::vector<std::int32_t> maze_distances(int side, std::span<const std::uint8_t> grid, std::size_t from) {
  return breadth_first(side, from, grid.size(), [&](std::size_t cell) { return grid[cell] != kMazeWall; });
}

MazeReport inspect_maze(int side, std::span<const std::uint8_t> question, std::span<const std::uint8_t> answer) {
  MazeReport report;
  const auto starts = std::count(question.begin(), question.end(), kMazeStart);
  const auto goals = std::count(question.begin(), question.end(), kMazeGoal);
  if (starts != 1 || goals != 1) {
    report.defect = join("the question has ", starts, " starts and ", goals, " goals, expected one of each");
    return report;
  }
  for (std::size_t cell = 0; cell < question.size(); ++cell) {
    if (answer[cell] == question[cell] || (answer[cell] == kMazePath && question[cell] == kMazeOpen)) continue;
    report.defect = join("cell ", cell + 1, " of the answer does not match the question");
    return report;
  }
  const auto start =
      static_cast<std::size_t>(std::find(question.begin(), question.end(), kMazeStart) - question.begin());
  const auto goal = static_cast<std::size_t>(std::find(question.begin(), question.end(), kMazeGoal) - question.begin());
  report.shortest = maze_distances(side, question, start)[goal];
  const auto along = breadth_first(side, start, answer.size(), [&](std::size_t cell) {
    return answer[cell] == kMazePath || answer[cell] == kMazeGoal;
  });
  if (along[goal] < 0) report.defect = "the path of the answer does not lead from the start to the goal";
  report.steps = 1 + std::count(answer.begin(), answer.end(), kMazePath);
  return report;
}

}  // namespace lockstep
