#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace lockstep::prep {

/// Tokens of a maze's cells; side * side of them, row-major.
enum MazeCell : std::uint8_t { kMazeWall = 1, kMazeOpen = 2, kMazeStart = 3, kMazeGoal = 4, kMazePath = 5 };
using MazeGrid = std::vector<std::uint8_t>;

/// Steps from `from` to every cell that is no wall, -1 where there is no way; neighbours are up, left, right, down.
std::vector<std::int32_t> maze_distances(int side, std::span<const std::uint8_t> grid, std::size_t from);

struct MazeReport {
  std::string defect;         ///< why the answer does not belong to the question, or ""
  std::int64_t steps = 0;     ///< along the answer
  std::int64_t shortest = 0;  ///< in the question
};
/// One start, one goal, the same walls; path cells on open ones, from start to goal without a gap.
MazeReport inspect_maze(int side, std::span<const std::uint8_t> question, std::span<const std::uint8_t> answer);

/// How a maze is made.
struct MazeRecipe {
  int side = 30;
  bool carved = true;     ///< a tree of corridors (one way between any two cells), else walls at random
  double density = 0.35;  ///< of walls at random
  std::int64_t min_path = 30;
  bool unique = false;  ///< with walls at random: exactly one shortest path
};
/// Fills question and answer; `below(n)` gives an integer uniform in 0 .. n-1. False when this draw has no start and goal that far apart.
/// The answer is the shortest path; of several the one that, seen from the goal, goes up before left before right before down.
bool make_maze(const MazeRecipe& recipe, const std::function<std::uint64_t(std::uint64_t)>& below, MazeGrid& question,
               MazeGrid& answer);
/// The smallest of the eight images of a grid: equal for mazes that rotations and mirrors make equal.
std::string canonical_maze(int side, std::span<const std::uint8_t> question);

}  // namespace lockstep::prep
