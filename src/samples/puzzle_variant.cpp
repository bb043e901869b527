#include "lockstep/samples/puzzle_variant.hpp"

#include <cassert>
#include <cmath>

#include "lockstep/base/error.hpp"

namespace lockstep {

SudokuVariant inverse(const SudokuVariant& variant) {
  // y[i][j] = m[x'[r[i]][c[j]]], with x' = x or its transpose, gives x'[a][b] = m^-1[y[r^-1[a]][c^-1[b]]]. For a
  // transpose, x[a][b] = x'[b][a], so row_perm and col_perm swap.
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
  const int side = variant.side();
  assert(std::ssize(grid) == side * side && out.size() == grid.size());
  for (int i = 0; i < side; ++i)
    for (int j = 0; j < side; ++j) out[i * side + j] = variant.cell(grid.data(), i, j, offset);
}

void dihedral(int id, int rows, int columns, std::span<const std::uint8_t> grid, std::span<std::uint8_t> out) {
  assert(id >= 0 && id < 8 && grid.size() == static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns) &&
         out.size() == grid.size());
  const int out_rows = dihedral_turns(id) ? columns : rows, out_columns = dihedral_turns(id) ? rows : columns;
  for (int i = 0; i < out_rows; ++i)
    for (int j = 0; j < out_columns; ++j) out[i * out_columns + j] = grid[dihedral_source(id, rows, columns, i, j)];
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
  const PuzzleVariant drawn = draw(group, variant);
  for (std::size_t cell = 0; cell < inputs.size(); ++cell) {
    out_inputs[cell] = drawn.token(inputs.data(), static_cast<int>(cell));
    out_labels[cell] = drawn.token(labels.data(), static_cast<int>(cell));
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
