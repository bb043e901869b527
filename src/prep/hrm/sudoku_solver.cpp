#include <algorithm>
#include <array>
#include <bit>

#include "lockstep/base/error.hpp"
#include "lockstep/prep/hrm/sudoku.hpp"

namespace lockstep::prep {

namespace {

constexpr int kMaxSide = 9, kMaxCells = kMaxSide * kMaxSide;
using Mask = std::uint16_t;

/// Cells and units of one order.
struct Board {
  int side = 0, cells = 0, units = 0;
  std::array<std::array<std::uint8_t, kMaxSide>, 3 * kMaxSide> unit_cells{};
  std::array<std::array<std::uint8_t, 3>, kMaxCells> cell_units{};

  explicit Board(int order) : side(order * order), cells(side * side), units(3 * side) {
    std::array<int, 3 * kMaxSide> filled{};
    for (int cell = 0; cell < cells; ++cell) {
      const int row = cell / side, column = cell % side, box = row / order * order + column / order;
      const std::array<int, 3> of = {row, side + column, 2 * side + box};
      for (std::size_t k = 0; k < 3; ++k) {
        const auto unit = static_cast<std::size_t>(of[k]);
        cell_units[cell][k] = static_cast<std::uint8_t>(unit);
        unit_cells[unit][filled[unit]++] = static_cast<std::uint8_t>(cell);
      }
    }
  }
  Mask all() const { return static_cast<Mask>((1 << side) - 1); }
};

const Board& board(int order) {
  static const Board kTwo(2), kThree(3);
  require(order == 2 || order == 3, "a Sudoku of order ", order, ": 2 and 3 are known");
  return order == 2 ? kTwo : kThree;
}

/// The search state: candidates of the open cells, digits placed per unit.
struct State {
  std::array<std::uint8_t, kMaxCells> digit{};
  std::array<Mask, 3 * kMaxSide> used{};
  int open = 0;
};

Mask candidates(const Board& b, const State& s, std::size_t cell) {
  const auto& u = b.cell_units[cell];
  return static_cast<Mask>(b.all() & ~(s.used[u[0]] | s.used[u[1]] | s.used[u[2]]));
}

void place(const Board& b, State& s, std::size_t cell, int digit) {
  s.digit[cell] = static_cast<std::uint8_t>(digit);
  --s.open;
  for (const auto unit : b.cell_units[cell]) s.used[unit] = static_cast<Mask>(s.used[unit] | (1 << (digit - 1)));
}

/// Places singles until there are none. False on a contradiction: a cell without candidates or a digit without a cell.
bool propagate(const Board& b, State& s) {
  for (bool moved = true; moved && s.open > 0;) {
    moved = false;
    for (std::size_t cell = 0; cell < static_cast<std::size_t>(b.cells); ++cell) {
      if (s.digit[cell] != 0) continue;
      const Mask open = candidates(b, s, cell);
      if (open == 0) return false;
      if (std::has_single_bit(open)) place(b, s, cell, std::countr_zero(open) + 1), moved = true;
    }
    for (std::size_t unit = 0; unit < static_cast<std::size_t>(b.units); ++unit) {
      Mask once = 0, twice = 0;
      std::array<Mask, kMaxSide> of{};
      for (std::size_t k = 0; k < static_cast<std::size_t>(b.side); ++k) {
        const auto cell = b.unit_cells[unit][k];
        if (s.digit[cell] != 0) continue;
        of[k] = candidates(b, s, cell);
        twice = static_cast<Mask>(twice | (once & of[k]));
        once = static_cast<Mask>(once | of[k]);
      }
      if ((once | s.used[unit]) != b.all()) return false;
      const Mask single = static_cast<Mask>(once & ~twice);
      if (single == 0) continue;
      for (std::size_t k = 0; k < static_cast<std::size_t>(b.side); ++k) {
        const Mask here = static_cast<Mask>(of[k] & single);
        if (here == 0) continue;
        const auto cell = b.unit_cells[unit][k];
        // Another digit also has only this cell, or an earlier placement removed the candidate.
        if (!std::has_single_bit(here) || (candidates(b, s, cell) & here) == 0) return false;
        place(b, s, cell, std::countr_zero(here) + 1);
        moved = true;
      }
    }
  }
  return true;
}

/// The open cell with the fewest candidates.
std::size_t narrowest(const Board& b, const State& s) {
  std::size_t best = 0;
  int fewest = kMaxSide + 1;
  for (std::size_t cell = 0; cell < static_cast<std::size_t>(b.cells) && fewest > 2; ++cell) {
    if (s.digit[cell] != 0) continue;
    const int n = std::popcount(candidates(b, s, cell));
    if (n < fewest) best = cell, fewest = n;
  }
  return best;
}

void search(const Board& b, State s, int limit, SudokuSolution& found) {
  if (!propagate(b, s)) return;
  if (s.open == 0) {
    if (found.count++ == 0) found.first.assign(s.digit.begin(), s.digit.begin() + b.cells);
    return;
  }
  const std::size_t cell = narrowest(b, s);
  for (Mask open = candidates(b, s, cell); open != 0 && found.count < limit;
       open = static_cast<Mask>(open & (open - 1))) {
    State next = s;
    place(b, next, cell, std::countr_zero(open) + 1);
    ++found.guesses;
    search(b, next, limit, found);
  }
}

bool fill_at_random(const Board& b, State& s, const std::function<std::uint64_t(std::uint64_t)>& below) {
  State trial = s;
  if (!propagate(b, trial)) return false;
  if (trial.open == 0) {
    s = trial;
    return true;
  }
  const std::size_t cell = narrowest(b, trial);
  Mask open = candidates(b, trial, cell);
  while (open != 0) {
    Mask chosen = open;
    for (auto skip = below(static_cast<std::uint64_t>(std::popcount(open))); skip > 0; --skip)
      chosen = static_cast<Mask>(chosen & (chosen - 1));
    const int digit = std::countr_zero(chosen) + 1;
    open = static_cast<Mask>(open & ~(1 << (digit - 1)));
    State next = trial;
    place(b, next, cell, digit);
    if (fill_at_random(b, next, below)) {
      s = next;
      return true;
    }
  }
  return false;
}

}  // namespace

std::int64_t givens_of(std::span<const std::uint8_t> grid) {
  return std::ranges::count_if(grid, [](std::uint8_t digit) { return digit > 0; });
}

std::int64_t fewest_givens(int order) { return order == 3 ? 17 : 4; }

int sudoku_order(std::size_t cells) { return cells == 16 ? 2 : cells == 81 ? 3 : 0; }

std::string sudoku_contradiction(int order, std::span<const std::uint8_t> grid) {
  const Board& b = board(order);
  for (std::size_t unit = 0; unit < static_cast<std::size_t>(b.units); ++unit) {
    Mask seen = 0;
    for (std::size_t k = 0; k < static_cast<std::size_t>(b.side); ++k) {
      const int digit = grid[b.unit_cells[unit][k]];
      if (digit == 0) continue;
      const Mask bit = static_cast<Mask>(1 << (digit - 1));
      static constexpr std::array kKinds = {"row", "column", "box"};
      const auto side = static_cast<std::size_t>(b.side);
      if ((seen & bit) != 0) return join("digit ", digit, " twice in ", kKinds[unit / side], " ", unit % side + 1);
      seen = static_cast<Mask>(seen | bit);
    }
  }
  return "";
}

std::string sudoku_answer_defect(int order, std::span<const std::uint8_t> question,
                                 std::span<const std::uint8_t> answer) {
  for (std::size_t cell = 0; cell < answer.size(); ++cell) {
    if (answer[cell] == 0) return join("the answer leaves cell ", cell + 1, " blank");
    if (question[cell] != 0 && question[cell] != answer[cell])
      return join("the answer has ", int{answer[cell]}, " in cell ", cell + 1, ", where the question gives ",
                  int{question[cell]});
  }
  const std::string twice = sudoku_contradiction(order, answer);
  return twice.empty() ? "" : "the answer has " + twice;
}

SudokuSolution solve_sudoku(int order, std::span<const std::uint8_t> question, int limit) {
  const Board& b = board(order);
  require(question.size() == static_cast<std::size_t>(b.cells), "solving a Sudoku of order ", order, ": ",
          question.size(), " cells");
  SudokuSolution found;
  if (!sudoku_contradiction(order, question).empty()) return found;
  State s{.open = b.cells};
  for (std::size_t cell = 0; cell < question.size(); ++cell)
    if (question[cell] != 0) place(b, s, cell, question[cell]);
  search(b, s, limit, found);
  return found;
}

SudokuGrid random_solution(int order, const std::function<std::uint64_t(std::uint64_t)>& below) {
  const Board& b = board(order);
  State s{.open = b.cells};
  require(fill_at_random(b, s, below), "filling an empty Sudoku failed");
  return {s.digit.begin(), s.digit.begin() + b.cells};
}

}  // namespace lockstep::prep
