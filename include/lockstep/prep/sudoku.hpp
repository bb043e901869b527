#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace lockstep::prep {

/// A grid of side order * order, row-major; 0 is a blank, 1 .. side a digit.
using SudokuGrid = std::vector<std::uint8_t>;

/// Order of a Sudoku of so many cells: 2 (16 cells) or 3 (81), 0 for any other number.
int sudoku_order(std::size_t cells);

/// Which cells of a grid share a row, column or box and hold the same digit: "digit 4 twice in row 3", counted from 1; "" when none do.
std::string sudoku_contradiction(int order, std::span<const std::uint8_t> grid);
/// Why `answer` does not solve `question`, or "".
std::string sudoku_answer_defect(int order, std::span<const std::uint8_t> question,
                                 std::span<const std::uint8_t> answer);

struct SudokuSolution {
  int count = 0;     ///< solutions found, at most the limit that was asked for
  SudokuGrid first;  ///< the first one
  std::int64_t guesses = 0;
};
/// Solves by naked and hidden singles; when these stop, tries the digits of the cell with the fewest candidates (the first such cell,
/// digits ascending). `guesses` counts the digits tried that way until `limit` solutions are found or all ways are tried: 0 means
/// that singles alone solve it. For a puzzle with one solution and limit 2 the number includes the proof that there is no other.
SudokuSolution solve_sudoku(int order, std::span<const std::uint8_t> question, int limit = 2);
/// A completed grid; `below(n)` gives an integer uniform in 0 .. n-1.
SudokuGrid random_solution(int order, const std::function<std::uint64_t(std::uint64_t)>& below);

/// The same text for two puzzles exactly when one of the symmetries (digits, bands, rows in a band, stacks, columns in a stack,
/// transposition) maps one on the other. `answer` must be the only solution. Of all images of the answer with first row 1 2 3 ... the
/// smallest is taken, and of all ways to it the one that gives the smallest pattern of givens; the text holds both.
std::string canonical_sudoku(int order, std::span<const std::uint8_t> question, std::span<const std::uint8_t> answer);

}  // namespace lockstep::prep
