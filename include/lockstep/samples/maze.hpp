#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Cell tokens. A maze is side * side of them, row-major.
enum MazeCell : std::uint8_t { kMazeWall = 1, kMazeOpen = 2, kMazeStart = 3, kMazeGoal = 4, kMazePath = 5 };

/// Calls f for the neighbours of a cell: up, left, right, down.
void around_cell(int side, std::size_t cell, auto f) {
  const auto n = static_cast<std::size_t>(side);
  if (cell >= n) f(cell - n);
  if (cell % n > 0) f(cell - 1);
  if (cell % n + 1 < n) f(cell + 1);
  if (cell / n + 1 < n) f(cell + n);
}

/// Length of the shortest way from cell `from` to every cell, in steps; -1 for walls and unreachable cells.
std::vector<std::int32_t> maze_distances(int side, std::span<const std::uint8_t> grid, std::size_t from);

struct MazeReport {
  std::string defect;         ///< why the answer does not solve the question, or ""
  std::int64_t steps = 0;     ///< along the answer
  std::int64_t shortest = 0;  ///< in the question
};
/// Checks that question and answer have one start, one goal and the same walls, and that path cells lead over open
/// cells from start to goal without a gap.
MazeReport inspect_maze(int side, std::span<const std::uint8_t> question, std::span<const std::uint8_t> answer);

}  // namespace lockstep
