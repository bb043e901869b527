#include <algorithm>
#include <limits>
#include <numeric>
#include <unordered_set>
#include <utility>

#include "lockstep/prep/hrm/sudoku.hpp"
#include "prep/hrm/puzzle_options.hpp"

namespace lockstep::prep {

namespace {

struct Recipe {
  int order = 3;
  std::int64_t min_givens = 0, max_givens = 0, min_rating = 0, max_rating = 0;
};

/// Removes digits from a random solution in random order while it stays unique; empty when the draw misses the recipe.
SudokuGrid draw_puzzle(const Recipe& recipe, Below& below, SudokuGrid& answer, std::int64_t& rating) {
  answer = random_solution(recipe.order, std::ref(below));
  SudokuGrid question = answer;
  auto givens = std::ssize(question);
  // With min_givens 0 the target is unreachable: digits go until none may.
  const std::int64_t spread = recipe.min_givens == 0 ? 0 : recipe.max_givens - recipe.min_givens;
  const std::int64_t wanted =
      recipe.min_givens + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(spread) + 1));
  std::vector<std::size_t> cells(question.size());
  std::iota(cells.begin(), cells.end(), std::size_t{0});
  for (std::size_t i = cells.size(); i > 1; --i) std::swap(cells[i - 1], cells[below(i)]);
  for (std::size_t i = 0; i < cells.size() && givens > wanted; ++i) {
    const std::uint8_t digit = std::exchange(question[cells[i]], std::uint8_t{0});
    if (solve_sudoku(recipe.order, question).count == 1) {
      --givens;
    } else {
      question[cells[i]] = digit;
    }
  }
  rating = solve_sudoku(recipe.order, question).guesses;
  if (givens > recipe.max_givens || rating < recipe.min_rating || rating > recipe.max_rating) return {};
  return question;
}

}  // namespace

bool run_synth_sudoku(const Args& args) {
  Options options("lockstep-prep synth-sudoku", "Synthetic Sudoku puzzles with one solution each.",
                  "No two puzzles of a file, and so no training and test puzzle, are equivalent under digits, bands, "
                  "rows, stacks, columns and transposition. The rating is the number of guesses of our solver, which "
                  "places naked and hidden singles and otherwise tries the digits of the cell with the fewest "
                  "candidates, until it has found the solution and proved that it is the only one.");
  Recipe recipe;
  std::int64_t train = 0, test = 0, num_aug = 0, tries = 0;
  options.add("order", &recipe.order, 3, between(2, 3), "2 makes 4x4 puzzles, 3 makes 9x9");
  options.add("train", &train, std::int64_t{1000}, between(1, 1e9), "training puzzles");
  options.add("test", &test, std::int64_t{200}, between(0, 1e9), "test puzzles");
  options.add(
      "min-givens", &recipe.min_givens, std::int64_t{0}, non_negative,
      "target number of givens, drawn between this and max-givens for each puzzle; 0: as few as its solution allows");
  options.add("max-givens", &recipe.max_givens, std::int64_t{81}, at_least(1), "puzzles with more givens are dropped");
  options.add("min-rating", &recipe.min_rating, std::int64_t{0}, non_negative,
              "puzzles with a lower rating are dropped");
  options.add("max-rating", &recipe.max_rating, std::int64_t{1000000}, non_negative,
              "puzzles with a higher rating are dropped; 0 keeps only those that singles solve");
  options.add("num-aug", &num_aug, std::int64_t{0}, between(0, 1e6), "variants of each training puzzle");
  options.add("max-tries", &tries, std::int64_t{20000}, at_least(1),
              "draws in a row without a new puzzle before giving up");
  PuzzleOptions common(options, 0, PuzzleOptions::Augment::option);
  common.add_val(options, "validation puzzles");
  options.example(
      "lockstep-prep synth-sudoku --train 400 --test 100 --min-givens 28 --max-givens 36 --num-aug 1000 --augment "
      "online --output sudoku.h5",
      "9x9 puzzles of middle difficulty");
  options.example(
      "lockstep-prep synth-sudoku --order 2 --train 300 --test 100 --min-givens 5 --max-givens 8 --output small.h5",
      "4x4 puzzles");
  if (!options.parse(args)) return false;
  const std::int64_t side = recipe.order * recipe.order, cells = side * side;
  recipe.max_givens = std::min(recipe.max_givens, cells);
  require_usage(recipe.min_givens <= recipe.max_givens, "options min-givens = ", recipe.min_givens,
                ", max-givens = ", recipe.max_givens, ": the first must not be larger");
  require_usage(recipe.min_rating <= recipe.max_rating, "options min-rating = ", recipe.min_rating,
                ", max-rating = ", recipe.max_rating, ": the first must not be larger");
  require_writable(common.output);
  common.require_room(train, test, num_aug, cells);

  BasePuzzles all;
  std::unordered_set<std::string> known;
  std::uint64_t draw = 0;
  for (std::int64_t missed = 0; all.size() < train + test + common.val; ++draw) {
    Below below(common.seed, draw, "synth.sudoku");
    SudokuGrid answer;
    std::int64_t rating = 0;
    SudokuGrid question = draw_puzzle(recipe, below, answer, rating);
    if (question.empty() || !known.insert(canonical_sudoku(recipe.order, question, answer)).second) {
      require_usage(++missed < tries, "making Sudoku puzzles: ", all.size(), " of ", train + test + common.val,
                    " inequivalent ones found, none in the last ", tries,
                    " draws; widen the givens or ratings, ask for fewer, or raise max-tries");
      continue;
    }
    missed = 0;
    PuzzleRow row;
    row.where = join("puzzle ", all.size());
    row.rating = static_cast<std::int32_t>(std::min<std::int64_t>(rating, std::numeric_limits<std::int32_t>::max()));
    for (auto* grid : {&question, &answer})
      for (auto& digit : *grid) ++digit;  // tokens
    all.add(row, question, answer);
  }
  // A random choice of test puzzles gives both splits the same distribution even if the search drifts.
  const auto order = draw_permutation(train + test, common.seed, "synth.split");
  // The last puzzles are for validation, so that train and test do not depend on their number.
  std::vector<std::int64_t> val(common.val);
  std::iota(val.begin(), val.end(), train + test);
  PuzzleSet set = sudoku_set(cells);
  common.apply(set);
  set.num_aug = num_aug;
  set.notes = {{"generator", std::string("synth-sudoku")},
               {"min_givens", recipe.min_givens},
               {"max_givens", recipe.max_givens},
               {"min_rating", recipe.min_rating},
               {"max_rating", recipe.max_rating}};
  add_base_puzzles(set, all.picked({order.begin(), order.begin() + train}),
                   all.picked({order.begin() + train, order.end()}), all.picked(val));
  common.write(set);
  return true;
}

}  // namespace lockstep::prep
