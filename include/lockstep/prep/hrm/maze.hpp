#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/samples/maze.hpp"

namespace lockstep::prep {

using MazeGrid = std::vector<std::uint8_t>;

/// Parameters of a random maze.
struct MazeRecipe {
  int side = 30;
  bool carved = true;     ///< a tree of corridors with one way between any two cells; otherwise random walls
  double density = 0.35;  ///< share of random walls
  std::int64_t min_path = 30;
  bool unique = false;  ///< with random walls: exactly one shortest path
};
/// Fills question and answer; `below(n)` returns a uniform integer in 0 .. n-1. Returns false if this draw has no start
/// and goal that are far enough apart. The answer is the shortest path; ties are broken from the goal: up, left, right,
/// down.
bool make_maze(const MazeRecipe& recipe, const std::function<std::uint64_t(std::uint64_t)>& below, MazeGrid& question,
               MazeGrid& answer);
/// The smallest of the eight dihedral images of a grid: equal for equivalent mazes.
std::string canonical_maze(int side, std::span<const std::uint8_t> question);

}  // namespace lockstep::prep
