#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace lockstep::prep {

/// A row-major grid of side order * order; 0 is a blank, 1 .. side a digit.
using SudokuGrid = std::vector<std::uint8_t>;

/// The order of a Sudoku: 2 for 16 cells, 3 for 81, 0 for any other number.
int sudoku_order(std::size_t cells);

/// The number of digits of a grid.
std::int64_t givens_of(std::span<const std::uint8_t> grid);
/// The fewest givens of a Sudoku with one solution: 17 of order 3, 4 of order 2.
///
/// source   McGuire, Tugemann, Civario 2012, arXiv:1201.0749; order 2 by enumeration
std::int64_t fewest_givens(int order);
inline constexpr const char* kFewGivens =
    "have fewer givens than any Sudoku with one solution (9x9: 17, 4x4: 4), so other answers are right too";

/// Names a digit that occurs twice in a row, column or box, "digit 4 twice in row 3", counted from 1; "" if there is
/// none.
std::string sudoku_contradiction(int order, std::span<const std::uint8_t> grid);
/// Why `answer` does not solve `question`, or "".
std::string sudoku_answer_defect(int order, std::span<const std::uint8_t> question,
                                 std::span<const std::uint8_t> answer);

struct SudokuSolution {
  int count = 0;     ///< solutions found, at most `limit`
  SudokuGrid first;  ///< the first one
  std::int64_t guesses = 0;
};
/// Solves by naked and hidden singles; when these stop, tries the digits, in ascending order, of the first cell with
/// the fewest candidates. `guesses` counts the tried digits until `limit` solutions are found or the search ends; 0
/// means that singles suffice. For a puzzle with one solution and limit 2 it includes the proof of uniqueness.
SudokuSolution solve_sudoku(int order, std::span<const std::uint8_t> question, int limit = 2);
/// A random completed grid; `below(n)` returns a uniform integer in 0 .. n-1.
SudokuGrid random_solution(int order, const std::function<std::uint64_t(std::uint64_t)>& below);

/// A canonical form: equal for two puzzles if and only if a symmetry (digits, bands, rows in a band, stacks, columns in
/// a stack, transposition) maps one to the other. `answer` must be the only solution. The text holds the smallest image
/// of the answer whose first row is 1 2 3 ..., and the smallest pattern of givens over the symmetries that lead to this
/// image.
std::string canonical_sudoku(int order, std::span<const std::uint8_t> question, std::span<const std::uint8_t> answer);

}  // namespace lockstep::prep
