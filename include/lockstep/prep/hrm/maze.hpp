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

/// Steps from `from` to every cell; -1 for walls and unreachable cells. Neighbours are up, left, right, down.
std::vector<std::int32_t> maze_distances(int side, std::span<const std::uint8_t> grid, std::size_t from);

struct MazeReport {
  std::string defect;         ///< why the answer does not solve the question, or ""
  std::int64_t steps = 0;     ///< along the answer
  std::int64_t shortest = 0;  ///< in the question
};
/// Checks that question and answer have one start, one goal and the same walls, and that path cells lead over open
/// cells from start to goal without a gap.
MazeReport inspect_maze(int side, std::span<const std::uint8_t> question, std::span<const std::uint8_t> answer);

/// Parameters of a random maze.
struct MazeRecipe {
  int side = 30;
  bool carved = true;     ///< a tree of corridors with one way between any two cells; otherwise random walls
  double density = 0.35;  ///< share of random walls
  std::int64_t min_path = 30;
  bool unique = false;  ///< with random walls: exactly one shortest path
};
/// Fills question and answer; `below(n)` returns a uniform integer in 0 .. n-1. False when no start and goal of this
/// draw are far enough apart. The answer is the shortest path; ties are broken from the goal: up, left, right, down.
bool make_maze(const MazeRecipe& recipe, const std::function<std::uint64_t(std::uint64_t)>& below, MazeGrid& question,
               MazeGrid& answer);
/// The smallest of the eight dihedral images of a grid: equal for equivalent mazes.
std::string canonical_maze(int side, std::span<const std::uint8_t> question);

}  // namespace lockstep::prep
