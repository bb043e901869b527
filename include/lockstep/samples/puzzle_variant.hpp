#pragma once
#include <array>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>

#include "lockstep/base/philox.hpp"

namespace lockstep {

/// Symmetries that turn a puzzle into an equivalent one. Data preparation, the data loader and kernels share this code,
/// so that variants drawn during training equal those that a prepared file stores.

/// Largest supported side of a Sudoku (order 3).
inline constexpr int kSudokuMaxSide = 9;

/// A symmetry of Sudoku: new[i][j] = digit_map[x[row_perm[i]][col_perm[j]]], where x is the grid, or its transpose if
/// `transpose`. Digit 0 is a blank and maps to itself.
struct SudokuVariant {
  int order = 3;  ///< side = order * order
  std::array<std::uint8_t, kSudokuMaxSide + 1> digit_map{};
  bool transpose = false;
  std::array<std::uint8_t, kSudokuMaxSide> row_perm{}, col_perm{};
  constexpr int side() const { return order * order; }
  /// Cell (i, j) of the variant of a grid: side * side cells, row-major, digit d stored as d + offset. Values that are
  /// not digits stay.
  constexpr std::uint8_t cell(const std::uint8_t* grid, int i, int j, int offset) const {
    const int row = row_perm[i], column = col_perm[j];
    const std::uint8_t value = grid[transpose ? column * side() + row : row * side() + column];
    const int digit = value - offset;
    if (digit < 0 || digit > side()) return value;
    return static_cast<std::uint8_t>(digit_map[digit] + offset);
  }
};
constexpr SudokuVariant sudoku_identity(int order) {
  SudokuVariant variant;
  variant.order = order;
  std::iota(variant.digit_map.begin(), variant.digit_map.end(), std::uint8_t{0});
  std::iota(variant.row_perm.begin(), variant.row_perm.end(), std::uint8_t{0});
  std::iota(variant.col_perm.begin(), variant.col_perm.end(), std::uint8_t{0});
  return variant;
}
/// Draws a variant as a function of (seed, group, variant) alone. Variant 0 is the identity. The others are uniform
/// over digit permutations, transposition, the order of bands and of the rows in each band, and the order of stacks and
/// of the columns in each stack.
constexpr SudokuVariant draw_sudoku_variant(int order, std::uint64_t seed, std::uint64_t group, std::uint64_t variant) {
  SudokuVariant drawn = sudoku_identity(order);
  if (variant == 0) return drawn;
  constexpr Site kSite("puzzle.variant");
  const Philox random(seed, variant, kSite, group);
  std::uint64_t next = 0;
  const auto shuffle = [&](std::uint8_t* values, int n) {  // Fisher-Yates
    for (int i = n - 1; i > 0; --i)
      std::swap(values[i], values[random.below(static_cast<std::uint64_t>(i) + 1, next++)]);
  };
  const auto draw_lines = [&](std::array<std::uint8_t, kSudokuMaxSide>& lines) {
    std::array<std::uint8_t, kSudokuMaxSide> bands{}, inside{};
    std::iota(bands.begin(), bands.begin() + order, std::uint8_t{0});
    shuffle(bands.data(), order);
    for (int band = 0; band < order; ++band) {
      std::iota(inside.begin(), inside.begin() + order, std::uint8_t{0});
      shuffle(inside.data(), order);
      for (int k = 0; k < order; ++k)
        lines[band * order + k] = static_cast<std::uint8_t>(bands[band] * order + inside[k]);
    }
  };
  shuffle(drawn.digit_map.data() + 1, drawn.side());
  drawn.transpose = random.below(2, next++) == 1;
  draw_lines(drawn.row_perm);
  draw_lines(drawn.col_perm);
  return drawn;
}
/// The variant that turns the image of a grid back into the grid.
SudokuVariant inverse(const SudokuVariant& variant);
/// Writes the variant of `grid` to `out`, which must not overlap it. Both are as for SudokuVariant::cell().
void apply_sudoku_variant(const SudokuVariant& variant, std::span<const std::uint8_t> grid, std::span<std::uint8_t> out,
                          int offset);

/// Inverses of the dihedral images of a grid: 0 identity; 1, 2, 3 rotate counter-clockwise by 90, 180, 270 degrees; 4
/// mirror left-right; 5 mirror up-down; 6 transpose; 7 rotate by 90 degrees, then mirror left-right.
inline constexpr std::array<int, 8> kDihedralInverse = {0, 3, 2, 1, 4, 5, 6, 7};
/// Whether image `id` swaps the numbers of rows and columns.
constexpr bool dihedral_turns(int id) { return id == 1 || id == 3 || id == 6 || id == 7; }
/// The cell of a rows x columns grid that becomes cell (i, j) of its image `id`. Cells are numbered row-major.
constexpr int dihedral_source(int id, int rows, int columns, int i, int j) {
  // Image `id` is the grid, transposed if it turns, with the order of rows and columns reversed as listed.
  constexpr bool kReverseRows[] = {false, false, true, true, false, true, false, true};
  constexpr bool kReverseColumns[] = {false, true, true, false, true, false, false, true};
  const int row = dihedral_turns(id) ? j : i, column = dihedral_turns(id) ? i : j;
  return (kReverseRows[id] ? rows - 1 - row : row) * columns + (kReverseColumns[id] ? columns - 1 - column : column);
}
/// Writes image `id` of a rows x columns grid to `out`, which must not overlap `grid`.
///
/// shapes   grid (rows, columns) row-major; out has the same size, and is (columns, rows) if dihedral_turns(id)
void dihedral(int id, int rows, int columns, std::span<const std::uint8_t> grid, std::span<std::uint8_t> out);

/// The attribute `task` of a puzzle file.
enum class PuzzleTask : std::uint8_t { sudoku, maze, arc };

/// One variant of the grids of a puzzle.
struct PuzzleVariant {
  enum class Kind : std::uint8_t { stored, sudoku, dihedral } kind = Kind::stored;
  int side = 0;          ///< of the grid, unless `stored`
  int image = 0;         ///< id of `dihedral`
  SudokuVariant sudoku;  ///< of `sudoku`
  /// Token `cell` of the variant of a grid of tokens, row-major.
  constexpr std::uint8_t token(const std::uint8_t* grid, int cell) const {
    if (kind == Kind::stored) return grid[cell];
    const int i = cell / side, j = cell % side;
    return kind == Kind::sudoku ? sudoku.cell(grid, i, j, 1) : grid[dihedral_source(image, side, side, i, j)];
  }
};

/// Variants of the base puzzles that a file with augment = "online" stores. Variant 0 of a group is the stored puzzle.
class PuzzleVariants {
 public:
  /// For a file that stores all puzzles: only variant 0 exists.
  PuzzleVariants() = default;
  /// `seq_len` is the number of tokens per grid; `seed` is an attribute of the file.
  /// errors   data: seq_len is not a supported square grid, or the task has no drawn variants (arc)
  PuzzleVariants(PuzzleTask task, std::int64_t seq_len, std::uint64_t seed);
  /// The draw of a variant. variant < 8 for a maze.
  constexpr PuzzleVariant draw(std::uint64_t group, std::uint64_t variant) const {
    PuzzleVariant drawn;
    if (variant == 0) return drawn;
    drawn.side = side_;
    if (task_ == PuzzleTask::sudoku) {
      drawn.kind = PuzzleVariant::Kind::sudoku;
      drawn.sudoku = draw_sudoku_variant(order_, seed_, group, variant);
    } else {
      drawn.kind = PuzzleVariant::Kind::dihedral;
      drawn.image = static_cast<int>(variant);
    }
    return drawn;
  }
  /// Applies the same variant to the input tokens and the label tokens of a puzzle. Spans hold seq_len tokens and must
  /// not overlap.
  void apply(std::uint64_t group, std::uint64_t variant, std::span<const std::uint8_t> inputs,
             std::span<const std::uint8_t> labels, std::span<std::uint8_t> out_inputs,
             std::span<std::uint8_t> out_labels) const;
  /// The inverse of apply() for one grid of tokens, such as an answer to the variant.
  void undo(std::uint64_t group, std::uint64_t variant, std::span<const std::uint8_t> grid,
            std::span<std::uint8_t> out) const;

 private:
  PuzzleTask task_ = PuzzleTask::arc;
  int side_ = 0, order_ = 0;
  std::uint64_t seed_ = 0;
};

}  // namespace lockstep
