#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "lockstep/prep/hrm/puzzle_csv.hpp"

namespace lockstep::prep {

/// A canonical form: equal for two puzzles of a task if and only if a symmetry maps one to the other. Takes tokens.
/// Sudoku and mazes only; a Sudoku needs its full answer.
std::string canonical_puzzle(PuzzleTask task, std::span<const std::uint8_t> inputs,
                             std::span<const std::uint8_t> labels);

/// How a table of puzzles becomes training and validation puzzles.
struct PuzzleDivision {
  PuzzleTask task;
  std::int64_t train = 0;  ///< training puzzles to draw; 0: all except those for validation
  std::int64_t val = 0;    ///< validation puzzles
  std::uint64_t seed = 0;
};
struct DividedPuzzles {
  BasePuzzles train, val;
};
/// Draws training puzzles from the table, and validation puzzles from the rest. If all would train, the validation
/// puzzles are drawn from the whole table and removed from training. No validation puzzle is equivalent to another one,
/// to a training or to a test puzzle. The training puzzles that are drawn do not depend on the number of validation
/// puzzles.
/// errors  usage: too few puzzles
DividedPuzzles divide_puzzles(const BasePuzzles& table, const BasePuzzles& test, const PuzzleDivision& how);

}  // namespace lockstep::prep
