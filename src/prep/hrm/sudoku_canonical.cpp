#include <algorithm>
#include <array>

#include "lockstep/base/consecutive.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/prep/hrm/sudoku.hpp"

namespace lockstep::prep {

namespace {

constexpr std::size_t kMaxSide = 9;
using Lines = std::array<std::uint8_t, kMaxSide>;

/// All (order!)^(order + 1) permutations of the lines that keep bands together.
std::vector<Lines> line_orders(std::size_t order) {
  std::vector<std::vector<std::size_t>> permutations;
  auto p = consecutive<std::size_t>(static_cast<std::int64_t>(order));
  do permutations.push_back(p);
  while (std::next_permutation(p.begin(), p.end()));
  std::vector<Lines> all;
  std::vector<std::size_t> pick(order + 1, 0);  // the permutation of the bands, and of each band's lines
  for (;;) {
    Lines lines{};
    for (std::size_t band = 0; band < order; ++band)
      for (std::size_t k = 0; k < order; ++k)
        lines[band * order + k] =
            static_cast<std::uint8_t>(permutations[pick[0]][band] * order + permutations[pick[band + 1]][k]);
    all.push_back(lines);
    std::size_t digit = 0;
    while (digit <= order && ++pick[digit] == permutations.size()) pick[digit++] = 0;
    if (digit > order) return all;
  }
}

const std::vector<Lines>& column_orders(std::size_t order) {
  static const std::vector<Lines> kTwo = line_orders(2), kThree = line_orders(3);
  return order == 2 ? kTwo : kThree;
}

/// The order of the rows that gives the smallest image for a chosen first row and column order. The entries of the
/// first column differ, so rows sort by them within bands, and bands by their smallest entry.
Lines smallest_rows(const std::uint8_t* grid, std::size_t order, std::size_t first_row, std::size_t first_column,
                    const Lines& digit_of) {
  const std::size_t side = order * order, band = first_row / order;
  const auto key = [&](std::size_t row) { return digit_of[grid[row * side + first_column] - 1u]; };
  std::array<std::array<std::uint8_t, 3>, 3> bands{};
  for (std::size_t n = 0; n < order; ++n)
    for (std::size_t k = 0; k < order; ++k) {
      const std::size_t row = n * order + k;
      std::size_t at = k;
      for (; at > 0 && key(bands[n][at - 1]) > key(row); --at) bands[n][at] = bands[n][at - 1];
      bands[n][at] = static_cast<std::uint8_t>(row);
    }
  std::swap(bands[0], bands[band]);
  if (order == 3 && key(bands[1][0]) > key(bands[2][0])) std::swap(bands[1], bands[2]);
  Lines rows{};
  for (std::size_t n = 0; n < order; ++n)
    for (std::size_t k = 0; k < order; ++k) rows[n * order + k] = bands[n][k];
  return rows;  // the first row has digit 1 in the first column, so it is first
}

}  // namespace

std::string canonical_sudoku(int order_, std::span<const std::uint8_t> question, std::span<const std::uint8_t> answer) {
  const auto order = static_cast<std::size_t>(order_), side = order * order, cells = side * side;
  require(answer.size() == cells && question.size() == cells && sudoku_answer_defect(order_, question, answer).empty(),
          "the canonical form of a Sudoku needs its solution");
  std::array<std::uint8_t, kMaxSide * kMaxSide> turned{}, turned_question{};
  for (std::size_t r = 0; r < side; ++r)
    for (std::size_t c = 0; c < side; ++c)
      turned[c * side + r] = answer[r * side + c], turned_question[c * side + r] = question[r * side + c];

  std::string best(cells, '\xff'), best_givens, image(cells, '\0'), givens(cells, '\0');
  for (const bool transpose : {false, true}) {
    const std::uint8_t* grid = transpose ? turned.data() : answer.data();
    const std::uint8_t* given = transpose ? turned_question.data() : question.data();
    for (std::size_t first = 0; first < side; ++first) {
      for (const Lines& columns : column_orders(order)) {
        Lines digit_of{};  // new name of each digit: the first row becomes 1 2 3 ...
        for (std::size_t c = 0; c < side; ++c)
          digit_of[grid[first * side + columns[c]] - 1u] = static_cast<std::uint8_t>(c + 1);
        const Lines rows = smallest_rows(grid, order, first, columns[0], digit_of);
        int sign = 0;  // of image against best, once they differ
        for (std::size_t r = 0; r < side && sign <= 0; ++r)
          for (std::size_t c = 0; c < side; ++c) {
            const std::size_t at = r * side + c;
            image[at] = static_cast<char>('0' + digit_of[grid[rows[r] * side + columns[c]] - 1u]);
            if (sign == 0 && image[at] != best[at]) {
              sign = static_cast<unsigned char>(image[at]) < static_cast<unsigned char>(best[at]) ? -1 : 1;
              if (sign > 0) break;
            }
          }
        if (sign > 0) continue;
        for (std::size_t r = 0; r < side; ++r)
          for (std::size_t c = 0; c < side; ++c)
            givens[r * side + c] = given[rows[r] * side + columns[c]] != 0 ? 'x' : '.';
        if (sign < 0)
          best = image, best_givens = givens;
        else
          best_givens = std::min(best_givens, givens);
      }
    }
  }
  return best + best_givens;
}

}  // namespace lockstep::prep
