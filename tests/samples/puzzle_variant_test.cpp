#include "lockstep/samples/puzzle_variant.hpp"

#include "support/test.hpp"

using Grid = std::vector<std::uint8_t>;

namespace {
Grid counting(std::size_t n) {
  Grid grid(n);
  std::iota(grid.begin(), grid.end(), std::uint8_t{0});
  return grid;
}
/// A solved Sudoku: each row shifts the row above it, by one more at each new band.
Grid solved(int order) {
  const int side = order * order;
  Grid grid;
  for (int r = 0; r < side; ++r)
    for (int c = 0; c < side; ++c)
      grid.push_back(static_cast<std::uint8_t>((r % order * order + r / order + c) % side + 1));
  return grid;
}
bool valid(const Grid& grid, int order) {
  const int side = order * order;
  std::set<std::vector<int>> seen;
  for (int r = 0; r < side; ++r) {
    for (int c = 0; c < side; ++c) {
      const int digit = grid[to_size(r * side + c)];
      if (digit < 1 || digit > side) return false;
      const bool fresh = seen.insert({0, r, digit}).second && seen.insert({1, c, digit}).second &&
                         seen.insert({2, r / order * order + c / order, digit}).second;
      if (!fresh) return false;
    }
  }
  return true;
}
}  // namespace

TEST_SUITE("samples.puzzle_variant") {
  TEST_CASE("every drawn variant of a solved Sudoku is a solved Sudoku") {
    for (const int order : {2, 3}) {
      const Grid grid = solved(order);
      REQUIRE(valid(grid, order));
      Grid out(grid.size());
      std::set<std::string> different;
      for (std::uint64_t variant = 0; variant < 200; ++variant) {
        apply_sudoku_variant(draw_sudoku_variant(order, 7, 3, variant), grid, out, 0);
        CHECK(valid(out, order));
        different.insert(std::string(out.begin(), out.end()));
      }
      CHECK(different.size() > (order == 3 ? 199u : 100u));
    }
  }

  TEST_CASE("variant 0 changes nothing, and the others depend on seed, group and variant only") {
    const Grid grid = solved(3);
    Grid out(81), again(81);
    apply_sudoku_variant(draw_sudoku_variant(3, 7, 3, 0), grid, out, 0);
    CHECK(out == grid);
    const auto drawn = [&](std::uint64_t seed, std::uint64_t group, std::uint64_t variant) {
      apply_sudoku_variant(draw_sudoku_variant(3, seed, group, variant), grid, again, 0);
      return again;
    };
    const Grid first = drawn(7, 3, 5);
    CHECK(drawn(7, 3, 5) == first);
    CHECK(drawn(8, 3, 5) != first);
    CHECK(drawn(7, 4, 5) != first);
    CHECK(drawn(7, 3, 6) != first);
  }

  TEST_CASE("digits, transposition, bands and rows are drawn uniformly") {
    constexpr int kDraws = 9000;
    std::array<int, 9> digit{}, row{}, column{};
    int turned = 0;
    for (std::uint64_t v = 1; v <= kDraws; ++v) {
      const auto drawn = draw_sudoku_variant(3, 1, 2, v);
      CHECK(drawn.digit_map[0] == 0);
      ++digit[drawn.digit_map[4] - 1u];
      ++row[drawn.row_perm[5]];
      ++column[drawn.col_perm[0]];
      turned += drawn.transpose;
      for (std::size_t band = 0; band < 3; ++band) {
        CHECK(drawn.row_perm[3 * band] / 3 == drawn.row_perm[3 * band + 1] / 3);
        CHECK(drawn.col_perm[3 * band] / 3 == drawn.col_perm[3 * band + 2] / 3);
      }
    }
    // 1000 expected, standard deviation 30
    for (const auto* counts : {&digit, &row, &column})
      for (const int count : *counts) CHECK(std::abs(count - 1000) < 150);
    CHECK(std::abs(turned - kDraws / 2) < 250);
  }

  TEST_CASE("dihedral images and their tabulated inverses cancel, also for oblong grids") {
    const Grid grid = counting(15);
    std::set<std::string> images;
    for (int id = 0; id < 8; ++id) {
      Grid image(15), back(15);
      dihedral(id, 3, 5, grid, image);
      const bool turns = dihedral_turns(id);
      dihedral(kDihedralInverse[to_size(id)], turns ? 5 : 3, turns ? 3 : 5, image, back);
      CHECK(back == grid);
      images.insert(std::string(image.begin(), image.end()) + (turns ? "5x3" : "3x5"));
    }
    CHECK(images.size() == 8);
    Grid image(15);
    dihedral(1, 3, 5, grid, image);
    CHECK(image == Grid{4, 9, 14, 3, 8, 13, 2, 7, 12, 1, 6, 11, 0, 5, 10});
  }

  TEST_CASE("question and answer get the same variant; ARC and non-square grids are rejected") {
    Grid labels = solved(3), inputs, out_inputs(81), out_labels(81);
    for (auto& token : labels) ++token;
    inputs = labels;
    for (std::size_t i = 0; i < 81; i += 2) inputs[i] = 1;
    PuzzleVariants(PuzzleTask::sudoku, 81, 5).apply(2, 9, inputs, labels, out_inputs, out_labels);
    int blanks = 0;
    for (std::size_t i = 0; i < 81; ++i) {
      blanks += out_inputs[i] == 1;
      CHECK((out_inputs[i] == 1 || out_inputs[i] == out_labels[i]));
    }
    CHECK(blanks == 41);
    const Grid maze = counting(9);
    Grid image(9), other(9);
    PuzzleVariants(PuzzleTask::maze, 9, 5).apply(0, 6, maze, maze, image, other);
    CHECK(image == Grid{0, 3, 6, 1, 4, 7, 2, 5, 8});
    CHECK(other == image);
    CHECK_THROWS_AS(PuzzleVariants(PuzzleTask::arc, 900, 0), Error);
    CHECK_THROWS_AS(PuzzleVariants(PuzzleTask::maze, 12, 0), Error);
    CHECK_THROWS_AS(PuzzleVariants(PuzzleTask::sudoku, 25, 0), Error);
  }

  TEST_CASE("undo() turns the image of a grid back, and tokens that are no digit stay") {
    for (const auto& [task, side] :
         {std::pair{PuzzleTask::sudoku, 4}, {PuzzleTask::sudoku, 9}, {PuzzleTask::maze, 5}}) {
      const PuzzleVariants variants(task, std::int64_t{side} * side, 7);
      Grid grid(to_size(side * side));
      for (std::size_t i = 0; i < grid.size(); ++i)
        grid[i] = static_cast<std::uint8_t>(i * i * i / 5 % 12);  // also 0, 1, 11
      std::set<Grid> images;
      for (std::uint64_t variant = 0; variant < 8; ++variant) {
        CAPTURE(variant);
        Grid image(grid.size()), other(grid.size()), back(grid.size());
        variants.apply(3, variant, grid, grid, image, other);
        CHECK(image == other);
        CHECK(std::ranges::count(image, 0) == std::ranges::count(grid, 0));
        CHECK(std::ranges::count(image, 11) == std::ranges::count(grid, 11));
        variants.undo(3, variant, image, back);
        CHECK(back == grid);
        images.insert(image);
      }
      CHECK(images.size() == 8);
    }
  }
}
