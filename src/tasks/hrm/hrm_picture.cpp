#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/nn/own_tape.hpp"
#include "lockstep/tasks/hrm/hrm_task.hpp"

namespace lockstep {
namespace {

constexpr double kGrid = 190, kGap = 24;  ///< side of a grid, and the gap between two

/// The text of a token; empty for blanks and open cells.
std::string symbol(const std::string& task, std::int32_t token) {
  if (task == "sudoku") return token >= 2 ? std::to_string(token - 1) : "";
  return token == 1 ? "\u2588" : token >= 3 ? std::string(1, " SGo"[token - 2]) : "";
}

/// The colours 0 .. 9 of ARC tasks, as their viewers show them. Tokens 0 and 1 are the padding and the grid's edge.
constexpr std::array kArcColours = {"#000000", "#0074d9", "#ff4136", "#2ecc40", "#ffdc00",
                                    "#aaaaaa", "#f012be", "#ff851b", "#7fdbff", "#870c25"};
constexpr std::int32_t kFirstColour = 2;

/// The side of the square at the origin that holds all coloured cells of two ARC grids.
std::int64_t coloured_side(std::span<const std::int32_t> a, std::span<const std::int32_t> b, std::int64_t side) {
  std::int64_t used = 1;
  for (std::int64_t i = 0; i < side * side; ++i)
    if (const auto at = static_cast<std::size_t>(i); std::max(a[at], b[at]) >= kFirstColour)
      used = std::max({used, i / side + 1, i % side + 1});
  return used;
}

/// One ARC grid at (x, y): the first `shown` rows and columns of `side`. Wrong cells are crossed out.
std::string draw_arc(std::int64_t side, std::int64_t shown, double x, double y, std::span<const std::int32_t> cells,
                     std::span<const std::int32_t> answer) {
  const double cell = kGrid / static_cast<double>(shown);
  std::string svg;
  for (std::int64_t row = 0; row < shown; ++row)
    for (std::int64_t column = 0; column < shown; ++column) {
      const auto at = static_cast<std::size_t>(row * side + column);
      const double left = x + cell * static_cast<double>(column), top = y + cell * static_cast<double>(row);
      if (cells[at] >= kFirstColour)
        svg += join("<rect x=\"", left, "\" y=\"", top, "\" width=\"", cell, "\" height=\"", cell, "\" fill=\"",
                    kArcColours[static_cast<std::size_t>(cells[at] - kFirstColour) % kArcColours.size()],
                    "\" stroke=\"var(--soft)\" stroke-width=\"0.3\"/>");
      if (cells[at] == answer[at]) continue;
      for (const char* colour : {"#ffffff\" stroke-width=\"3", "#d0392b\" stroke-width=\"1.4"})
        svg += join("<path d=\"M", left + 0.2 * cell, " ", top + 0.2 * cell, "l", 0.6 * cell, " ", 0.6 * cell, "m0 ",
                    -0.6 * cell, "l", -0.6 * cell, " ", 0.6 * cell, "\" fill=\"none\" stroke=\"", colour, "\"/>");
    }
  return svg;
}

/// One grid at (x, y). Given cells have the page's ink colour, right answers are green, wrong ones red.
std::string board_svg(const std::string& task, std::int64_t side, double x, double y,
                      std::span<const std::int32_t> cells, std::span<const std::int32_t> given,
                      std::span<const std::int32_t> answer) {
  const double cell = kGrid / static_cast<double>(side);
  const auto box = static_cast<std::int64_t>(std::lround(std::sqrt(static_cast<double>(side))));
  std::string svg;
  for (std::int64_t i = 0; i <= side; ++i) {
    const bool edge = i == 0 || i == side || (task == "sudoku" && i % box == 0);
    if (!edge && side > 9) continue;
    const double at = cell * static_cast<double>(i);
    const char* width = edge ? "1.4" : "0.4";
    svg += join("<path d=\"M", x + at, " ", y, "v", kGrid, "M", x, " ", y + at, "h", kGrid,
                "\" stroke=\"var(--soft)\" fill=\"none\" stroke-width=\"", width, "\"/>");
  }
  for (std::int64_t i = 0; i < side * side; ++i) {
    const std::string text = symbol(task, cells[i]);
    if (text.empty()) continue;
    const bool clue = task == "sudoku" ? given[i] >= 2 : given[i] == cells[i];
    const char* colour = clue ? "var(--ink)" : cells[i] == answer[i] ? "#2e8b57" : "#d0392b";
    svg += join("<text text-anchor=\"middle\" x=\"", x + cell * (static_cast<double>(i % side) + 0.5), "\" y=\"",
                y + cell * (static_cast<double>(i / side) + 0.78), "\" font-size=\"", 0.72 * cell, "\" fill=\"", colour,
                "\">", text, "</text>");
  }
  return svg;
}

}  // namespace

std::pair<std::string, std::string> HrmTask::picture() const {
  const auto side = static_cast<std::int64_t>(std::lround(std::sqrt(static_cast<double>(data_.seq_len))));
  if (size(Split::test) == 0 || side * side != data_.seq_len) return {};
  const auto cells = static_cast<std::size_t>(data_.seq_len);
  const auto &inputs = pictured_.inputs, &labels = pictured_.labels;
  std::vector<std::int32_t> before;

  const bool arc = data_.task == "arc";
  const std::int64_t shown = arc ? coloured_side(inputs, labels, side) : side;
  std::vector<std::string> grids;
  const auto add = [&](const std::string& title, std::span<const std::int32_t> tokens) {
    const auto n = static_cast<double>(grids.size());
    const double x = std::fmod(n, 4.0) * (kGrid + kGap), y = 20 + std::floor(n / 4) * (kGrid + kGap + 12);
    grids.push_back(
        join("<text x=\"", x, "\" y=\"", y - 6, "\" font-size=\"12\" fill=\"var(--soft)\">", title, "</text>") +
        (arc ? draw_arc(side, shown, x, y, tokens, grids.empty() ? tokens : std::span<const std::int32_t>(labels))
             : board_svg(data_.task, side, x, y, tokens, inputs, labels)));
  };
  add("puzzle", inputs);
  OwnTape tape(network_.params());
  std::int64_t settled = 0;
  solve(
      tape, inputs, pictured_.identifiers, options_.eval_segments,
      [&](std::int64_t, std::int64_t segment, std::span<const std::int32_t> tokens, double q_halt, double q_continue) {
        if (std::equal(tokens.begin(), tokens.end(), before.begin(), before.end())) return true;
        before.assign(tokens.begin(), tokens.end());
        settled = segment;
        std::int64_t right = 0;
        for (std::size_t i = 0; i < cells; ++i) right += tokens[i] == labels[i];
        if (grids.size() < 12)
          add(join("segment ", segment, ": ", right, "/", cells,
                   q_halt > (options_.loss.q_continue ? q_continue : 0) ? ", halts" : ""),
              tokens);
        return true;
      });
  const auto rows = static_cast<double>((grids.size() + 3) / 4);
  std::string svg = join("<svg viewBox=\"-4 0 ", 4 * (kGrid + kGap), " ", 20 + rows * (kGrid + kGap + 12),
                         "\" xmlns=\"http://www.w3.org/2000/svg\">");
  for (const std::string& grid : grids) svg += grid;
  return {join("The first test puzzle: the answer changes until segment ", settled), svg + "</svg>"};
}

}  // namespace lockstep
