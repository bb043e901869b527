#include "tasks/hrm/puzzle_rules.hpp"

#include <cmath>
#include <map>
#include <tuple>

#include "lockstep/base/error.hpp"

namespace lockstep {

std::string sudoku_violation(std::span<const std::int32_t> grid) {
  const auto side = static_cast<std::int64_t>(std::lround(std::sqrt(static_cast<double>(grid.size()))));
  const auto box = static_cast<std::int64_t>(std::lround(std::sqrt(static_cast<double>(side))));
  std::map<std::tuple<int, std::int64_t, std::int32_t>, int> seen;
  for (std::int64_t i = 0; i < side * side; ++i) {
    const std::int32_t token = grid[static_cast<std::size_t>(i)];
    if (token < 2) continue;
    const std::int64_t row = i / side, column = i % side;
    const char* names[] = {"row ", "column ", "box "};
    const std::int64_t units[] = {row, column, row / box * box + column / box};
    for (int k = 0; k < 3; ++k)
      if (++seen[{k, units[k], token}] > 1) return join("digit ", token - 1, " twice in ", names[k], units[k] + 1);
  }
  return "";
}

std::string puzzle_defect(const std::string& task, std::span<const std::int32_t> puzzle,
                          std::span<const std::int32_t> answer) {
  std::string defect = task == "sudoku" ? sudoku_violation(answer) : "";
  for (std::size_t c = 0; c < puzzle.size() && defect.empty(); ++c) {
    const std::int32_t given = puzzle[c], now = answer[c];
    if (task == "sudoku") {
      if (now < 2) defect = join("cell ", c + 1, " is empty");
      if (given >= 2 && given != now) defect = join("given cell ", c + 1, " was changed");
    } else if (now != given && !(given == 2 && now == 5)) {
      defect = join("cell ", c + 1, " was changed");
    }
  }
  return defect;
}

}  // namespace lockstep
