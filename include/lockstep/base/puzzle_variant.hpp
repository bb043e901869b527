#pragma once
#include <array>
#include <cstdint>
#include <span>

namespace lockstep {

/// Symmetries that turn a puzzle into an equivalent one. Preparing data and reading them share this code, so that variants made
/// while training are those that a file would hold.

/// Longest side of a Sudoku that is read: order 3.
inline constexpr int kSudokuMaxSide = 9;

/// new[i][j] = digit_map[x[row_perm[i]][col_perm[j]]], x = the grid, transposed first if so drawn. Digit 0 is the blank, kept.
struct SudokuVariant {
  int order = 3;  ///< side = order * order
  std::array<std::uint8_t, kSudokuMaxSide + 1> digit_map{};
  bool transpose = false;
  std::array<std::uint8_t, kSudokuMaxSide> row_perm{}, col_perm{};
  int side() const { return order * order; }
};
SudokuVariant sudoku_identity(int order);
/// Variant 0 is the identity; any other one a function of (seed, group, variant) alone: uniform over digit permutations, transposition,
/// orders of bands and of the rows in each band, of stacks and of the columns in each stack.
SudokuVariant draw_sudoku_variant(int order, std::uint64_t seed, std::uint64_t group, std::uint64_t variant);
/// Writes the variant of `grid` (side * side cells, row-major, a digit stored as digit + offset) to `out`, which may not overlap it.
void apply_sudoku_variant(const SudokuVariant& variant, std::span<const std::uint8_t> grid, std::span<std::uint8_t> out,
                          int offset);

/// Dihedral images of a grid: 0 identity; 1, 2, 3 rotate counter-clockwise by 90, 180, 270 degrees; 4 mirror left-right; 5 mirror
/// up-down; 6 transpose; 7 = rotate by 90, then mirror left-right.
inline constexpr std::array<int, 8> kDihedralInverse = {0, 3, 2, 1, 4, 5, 6, 7};
/// Whether the image has the rows and columns of the grid exchanged.
constexpr bool dihedral_turns(int id) { return id == 1 || id == 3 || id == 6 || id == 7; }
/// Writes image `id` of a rows x columns grid to `out` (row-major, no overlap).
void dihedral(int id, int rows, int columns, std::span<const std::uint8_t> grid, std::span<std::uint8_t> out);

/// What the attribute `task` of a puzzle file says.
enum class PuzzleTask : std::uint8_t { sudoku, maze, arc };

/// Variants of the stored base puzzles of a file with augment = "online": puzzle `variant` of group `group`, 0 being the stored one.
class PuzzleVariants {
 public:
  /// `seq_len` tokens per grid, `seed` of the file. errors  data: tokens that are no square grid, or a task without such variants (arc)
  PuzzleVariants(PuzzleTask task, std::int64_t seq_len, std::uint64_t seed);
  /// Input and label tokens of the variant, one joint draw; spans of seq_len, no overlap.
  void apply(std::uint64_t group, std::uint64_t variant, std::span<const std::uint8_t> inputs,
             std::span<const std::uint8_t> labels, std::span<std::uint8_t> out_inputs,
             std::span<std::uint8_t> out_labels) const;

 private:
  PuzzleTask task_;
  int side_ = 0, order_ = 0;
  std::uint64_t seed_;
};

}  // namespace lockstep
