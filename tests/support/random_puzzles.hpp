#pragma once
#include "lockstep/tasks/hrm/puzzle_data.hpp"

namespace lockstep::test {

/// Synthetic puzzles with tokens 1..vocab-1, whose answers are a function of the inputs: one example per puzzle and
/// group, `groups` for training and a third as many for the test. The
/// arrays live as long as the process.
PuzzleData random_puzzles(std::int64_t groups, std::int64_t cells = 9, std::int64_t vocab = 6,
                          std::int64_t identifiers = 4);

/// A part with these numbers of puzzles per group and examples per puzzle. Row r has tokens r % 7.
PuzzlePart uneven_part(const std::vector<std::int64_t>& puzzles_of_group,
                       const std::vector<std::int64_t>& examples_of_puzzle, std::int64_t cells = 4);

}  // namespace lockstep::test
