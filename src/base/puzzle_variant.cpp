#include "lockstep/base/puzzle_variant.hpp"

#include <cassert>
#include <cmath>
#include <numeric>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/philox.hpp"

namespace lockstep {

namespace {

/// Shuffles n values (Fisher-Yates) with the draws next, next + 1, ...
void shuffle(std::uint8_t* values, int n, const Philox& random, std::uint64_t& next) {
  for (int i = n - 1; i > 0; --i) std::swap(values[i], values[random.below(static_cast<std::uint64_t>(i) + 1, next++)]);
}

/// Draws an order of `order` bands and, for each band, of the lines in it.
void draw_lines(std::uint8_t* lines, int order, const Philox& random, std::uint64_t& next) {
  std::array<std::uint8_t, kSudokuMaxSide> bands{}, inside{};
  std::iota(bands.begin(), bands.begin() + order, std::uint8_t{0});
  shuffle(bands.data(), order, random, next);
  for (int band = 0; band < order; ++band) {
    std::iota(inside.begin(), inside.begin() + order, std::uint8_t{0});
    shuffle(inside.data(), order, random, next);
    for (int k = 0; k < order; ++k)
      lines[band * order + k] = static_cast<std::uint8_t>(bands[static_cast<std::size_t>(band)] * order +
                                                          inside[static_cast<std::size_t>(k)]);
  }
}

}  // namespace

SudokuVariant sudoku_identity(int order) {
  SudokuVariant variant;
  variant.order = order;
  std::iota(variant.digit_map.begin(), variant.digit_map.end(), std::uint8_t{0});
  std::iota(variant.row_perm.begin(), variant.row_perm.end(), std::uint8_t{0});
  std::iota(variant.col_perm.begin(), variant.col_perm.end(), std::uint8_t{0});
  return variant;
}

SudokuVariant draw_sudoku_variant(int order, std::uint64_t seed, std::uint64_t group, std::uint64_t variant) {
  SudokuVariant drawn = sudoku_identity(order);
  if (variant == 0) return drawn;
  const Philox random(seed, variant, "puzzle.variant", group);
  std::uint64_t next = 0;
  shuffle(drawn.digit_map.data() + 1, drawn.side(), random, next);
  drawn.transpose = random.below(2, next++) == 1;
  draw_lines(drawn.row_perm.data(), order, random, next);
  draw_lines(drawn.col_perm.data(), order, random, next);
  return drawn;
}

SudokuVariant inverse(const SudokuVariant& variant) {
  // y[i][j] = m[x'[r[i]][c[j]]], with x' = x or its transpose, gives x'[a][b] = m^-1[y[r^-1[a]][c^-1[b]]]. For a
  // transpose, x[a][b] = x'[b][a], so rows and columns change places.
  SudokuVariant back = sudoku_identity(variant.order);
  back.transpose = variant.transpose;
  auto &rows = back.transpose ? back.col_perm : back.row_perm,
       &columns = back.transpose ? back.row_perm : back.col_perm;
  for (std::size_t i = 0; i < static_cast<std::size_t>(variant.side()); ++i) {
    back.digit_map[variant.digit_map[i + 1]] = static_cast<std::uint8_t>(i + 1);
    rows[variant.row_perm[i]] = static_cast<std::uint8_t>(i);
    columns[variant.col_perm[i]] = static_cast<std::uint8_t>(i);
  }
  return back;
}

void apply_sudoku_variant(const SudokuVariant& variant, std::span<const std::uint8_t> grid, std::span<std::uint8_t> out,
                          int offset) {
  const auto side = static_cast<std::size_t>(variant.side());
  assert(grid.size() == side * side && out.size() == grid.size());
  const std::size_t row_step = variant.transpose ? 1 : side, col_step = variant.transpose ? side : 1;
  for (std::size_t i = 0; i < side; ++i) {
    for (std::size_t j = 0; j < side; ++j) {
      const std::uint8_t value = grid[variant.row_perm[i] * row_step + variant.col_perm[j] * col_step];
      const int digit = value - offset;
      out[i * side + j] = digit < 0 || digit > variant.side()
                              ? value
                              : static_cast<std::uint8_t>(variant.digit_map[static_cast<std::size_t>(digit)] + offset);
    }
  }
}

void dihedral(int id, int rows, int columns, std::span<const std::uint8_t> grid, std::span<std::uint8_t> out) {
  assert(id >= 0 && id < 8 && grid.size() == static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns) &&
         out.size() == grid.size());
  // Image `id` is the grid, transposed if it turns, with the order of rows and columns reversed as listed.
  constexpr bool kReverseRows[] = {false, false, true, true, false, true, false, true};
  constexpr bool kReverseColumns[] = {false, true, true, false, true, false, false, true};
  const bool turns = dihedral_turns(id);
  const int out_rows = turns ? columns : rows, out_columns = turns ? rows : columns;
  for (int i = 0; i < out_rows; ++i) {
    for (int j = 0; j < out_columns; ++j) {
      const int row = turns ? j : i, column = turns ? i : j;
      const int r = kReverseRows[id] ? rows - 1 - row : row;
      const int c = kReverseColumns[id] ? columns - 1 - column : column;
      out[static_cast<std::size_t>(i * out_columns + j)] = grid[static_cast<std::size_t>(r * columns + c)];
    }
  }
}

PuzzleVariants::PuzzleVariants(PuzzleTask task, std::int64_t seq_len, std::uint64_t seed) : task_(task), seed_(seed) {
  side_ = static_cast<int>(std::lround(std::sqrt(static_cast<double>(seq_len))));
  require_data(task != PuzzleTask::arc,
               "drawing puzzle variants: ARC tasks store their variants; rebuild the file with --augment offline");
  require_data(std::int64_t{side_} * side_ == seq_len, "drawing puzzle variants: ", seq_len,
               " tokens do not form a square grid");
  if (task_ == PuzzleTask::sudoku) {
    order_ = static_cast<int>(std::lround(std::sqrt(side_)));
    require_data(order_ * order_ == side_ && side_ <= kSudokuMaxSide, "drawing puzzle variants: a Sudoku of side ",
                 side_, " is not supported");
  }
}

void PuzzleVariants::apply(std::uint64_t group, std::uint64_t variant, std::span<const std::uint8_t> inputs,
                           std::span<const std::uint8_t> labels, std::span<std::uint8_t> out_inputs,
                           std::span<std::uint8_t> out_labels) const {
  if (task_ == PuzzleTask::sudoku) {
    const SudokuVariant drawn = draw_sudoku_variant(order_, seed_, group, variant);
    apply_sudoku_variant(drawn, inputs, out_inputs, 1);
    apply_sudoku_variant(drawn, labels, out_labels, 1);
  } else {
    assert(variant < 8);
    dihedral(static_cast<int>(variant), side_, side_, inputs, out_inputs);
    dihedral(static_cast<int>(variant), side_, side_, labels, out_labels);
  }
}

void PuzzleVariants::undo(std::uint64_t group, std::uint64_t variant, std::span<const std::uint8_t> grid,
                          std::span<std::uint8_t> out) const {
  if (task_ == PuzzleTask::sudoku) {
    apply_sudoku_variant(inverse(draw_sudoku_variant(order_, seed_, group, variant)), grid, out, 1);
  } else {
    dihedral(kDihedralInverse[variant], side_, side_, grid, out);
  }
}

}  // namespace lockstep
