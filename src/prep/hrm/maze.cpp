#include "lockstep/prep/hrm/maze.hpp"

#include <array>

#include "lockstep/samples/puzzle_variant.hpp"

namespace lockstep::prep {

namespace {

/// Carves corridors between cells with even coordinates by a random walk with backtracking.
MazeGrid carve(int side, const std::function<std::uint64_t(std::uint64_t)>& below) {
  const auto n = static_cast<std::size_t>(side), rooms = (n + 1) / 2;
  MazeGrid grid(n * n, kMazeWall);
  const auto at = [&](std::size_t row, std::size_t column) { return 2 * row * n + 2 * column; };
  std::vector<std::pair<std::size_t, std::size_t>> walk = {{below(rooms), below(rooms)}};
  grid[at(walk[0].first, walk[0].second)] = kMazeOpen;
  while (!walk.empty()) {
    const auto [row, column] = walk.back();
    std::array<std::pair<std::size_t, std::size_t>, 4> fresh;
    std::size_t count = 0;
    const auto consider = [&](bool inside, std::size_t r, std::size_t c) {
      if (inside && grid[at(r, c)] == kMazeWall) fresh[count++] = {r, c};
    };
    consider(row > 0, row - 1, column);
    consider(column > 0, row, column - 1);
    consider(column + 1 < rooms, row, column + 1);
    consider(row + 1 < rooms, row + 1, column);
    if (count == 0) {
      walk.pop_back();
      continue;
    }
    const auto next = fresh[below(count)];
    grid[at(next.first, next.second)] = kMazeOpen;
    grid[(at(row, column) + at(next.first, next.second)) / 2] = kMazeOpen;
    walk.push_back(next);
  }
  return grid;
}

}  // namespace

bool make_maze(const MazeRecipe& recipe, const std::function<std::uint64_t(std::uint64_t)>& below, MazeGrid& question,
               MazeGrid& answer) {
  const auto cells = static_cast<std::size_t>(recipe.side) * static_cast<std::size_t>(recipe.side);
  if (recipe.carved) {
    question = carve(recipe.side, below);
  } else {
    question.assign(cells, kMazeOpen);
    for (auto& cell : question)
      if (static_cast<double>(below(std::uint64_t{1} << 32)) < recipe.density * 0x1p32) cell = kMazeWall;
  }
  std::vector<std::size_t> open;
  for (std::size_t cell = 0; cell < cells; ++cell)
    if (question[cell] == kMazeOpen) open.push_back(cell);
  if (open.size() < 2) return false;
  const std::size_t start = open[below(open.size())];
  const auto steps = maze_distances(recipe.side, question, start);
  std::erase_if(open, [&](std::size_t cell) { return cell == start || steps[cell] < recipe.min_path; });
  if (open.empty()) return false;
  const std::size_t goal = open[below(open.size())];
  question[start] = kMazeStart;
  question[goal] = kMazeGoal;
  answer = question;
  bool one_way = true;
  for (std::size_t cell = goal; cell != start;) {
    std::size_t back = cells;
    around_cell(recipe.side, cell, [&](std::size_t next) {
      if (steps[next] != steps[cell] - 1) return;
      one_way = one_way && back == cells;
      if (back == cells) back = next;
    });
    cell = back;
    if (cell != start) answer[cell] = kMazePath;
  }
  return one_way || !recipe.unique;
}

std::string canonical_maze(int side, std::span<const std::uint8_t> question) {
  std::string best;
  MazeGrid image(question.size());
  for (int id = 0; id < 8; ++id) {
    dihedral(id, side, side, question, image);
    std::string text(image.begin(), image.end());
    if (id == 0 || text < best) best = std::move(text);
  }
  return best;
}

}  // namespace lockstep::prep
