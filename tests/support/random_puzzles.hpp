#pragma once
#include "lockstep/data/puzzle_data.hpp"

namespace lockstep::test {

/// Made-up puzzles of `cells` cells with tokens 1..vocab-1, answers that are a function of the question, one example per
/// puzzle and group (so many for training, a third of them for the test). The placement owns the arrays.
PuzzleData random_puzzles(Placement& placement, std::int64_t groups, std::int64_t cells = 9, std::int64_t vocab = 6,
                          std::int64_t identifiers = 4);

/// A part whose groups hold these numbers of puzzles, whose puzzles hold these numbers of examples; row r holds tokens
/// r % 7.
PuzzlePart uneven_part(Placement& placement, const std::vector<std::int64_t>& puzzles_of_group,
                       const std::vector<std::int64_t>& examples_of_puzzle, std::int64_t cells = 4);

}  // namespace lockstep::test
