#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace lockstep {

/// Describes a violated Sudoku rule, such as "digit 5 twice in row 3"; "" if there is none. Empty cells violate none.
std::string sudoku_violation(std::span<const std::int32_t> grid);
/// Why an answer does not solve its puzzle (sudoku or maze), or "". The answer to a maze is a shortest path.
std::string puzzle_defect(const std::string& task, std::span<const std::int32_t> puzzle,
                          std::span<const std::int32_t> answer);

}  // namespace lockstep
