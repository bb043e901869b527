#pragma once
#include <array>
#include <cstdint>
#include <span>

namespace lockstep {

/// Symmetries that turn a puzzle into an equivalent one. Data preparation and the data loader share this code, so that
/// variants drawn during training equal those that a prepared file stores.

/// Largest supported side of a Sudoku (order 3).
inline constexpr int kSudokuMaxSide = 9;

/// A symmetry of Sudoku: new[i][j] = digit_map[x[row_perm[i]][col_perm[j]]], where x is the grid, or its transpose if
/// `transpose`. Digit 0 is a blank and maps to itself.
struct SudokuVariant {
  int order = 3;  ///< side = order * order
  std::array<std::uint8_t, kSudokuMaxSide + 1> digit_map{};
  bool transpose = false;
  std::array<std::uint8_t, kSudokuMaxSide> row_perm{}, col_perm{};
  int side() const { return order * order; }
};
SudokuVariant sudoku_identity(int order);
/// Draws a variant as a function of (seed, group, variant) alone. Variant 0 is the identity. The others are uniform
/// over digit permutations, transposition, the order of bands and of the rows in each band, and the order of stacks and
/// of the columns in each stack.
SudokuVariant draw_sudoku_variant(int order, std::uint64_t seed, std::uint64_t group, std::uint64_t variant);
/// The variant that turns the image of a grid back into the grid.
SudokuVariant inverse(const SudokuVariant& variant);
/// Writes the variant of `grid` (side * side cells, row-major, digit d stored as d + offset) to `out`, which must not
/// overlap `grid`. Values that are no digit keep their value.
void apply_sudoku_variant(const SudokuVariant& variant, std::span<const std::uint8_t> grid, std::span<std::uint8_t> out,
                          int offset);

/// Inverses of the dihedral images of a grid: 0 identity; 1, 2, 3 rotate counter-clockwise by 90, 180, 270 degrees; 4
/// mirror left-right; 5 mirror up-down; 6 transpose; 7 rotate by 90 degrees, then mirror left-right.
inline constexpr std::array<int, 8> kDihedralInverse = {0, 3, 2, 1, 4, 5, 6, 7};
/// Whether image `id` swaps the numbers of rows and columns.
constexpr bool dihedral_turns(int id) { return id == 1 || id == 3 || id == 6 || id == 7; }
/// Writes image `id` of a rows x columns grid to `out`, which must not overlap `grid`.
///
/// shapes   grid (rows, columns) row-major; out has the same size, and is (columns, rows) if dihedral_turns(id)
void dihedral(int id, int rows, int columns, std::span<const std::uint8_t> grid, std::span<std::uint8_t> out);

/// The attribute `task` of a puzzle file.
enum class PuzzleTask : std::uint8_t { sudoku, maze, arc };

/// Variants of the base puzzles that a file with augment = "online" stores. Variant 0 of a group is the stored puzzle.
class PuzzleVariants {
 public:
  /// `seq_len` is the number of tokens per grid, `seed` is that of the file.
  /// errors   data: seq_len is not a supported square grid, or the task has no drawn variants (arc)
  PuzzleVariants(PuzzleTask task, std::int64_t seq_len, std::uint64_t seed);
  /// Applies one draw to the input tokens and the label tokens of a puzzle. Spans hold seq_len tokens and must not
  /// overlap.
  void apply(std::uint64_t group, std::uint64_t variant, std::span<const std::uint8_t> inputs,
             std::span<const std::uint8_t> labels, std::span<std::uint8_t> out_inputs,
             std::span<std::uint8_t> out_labels) const;
  /// The inverse of apply() for one grid of tokens, such as an answer to the variant.
  void undo(std::uint64_t group, std::uint64_t variant, std::span<const std::uint8_t> grid,
            std::span<std::uint8_t> out) const;

 private:
  PuzzleTask task_;
  int side_ = 0, order_ = 0;
  std::uint64_t seed_;
};

}  // namespace lockstep
