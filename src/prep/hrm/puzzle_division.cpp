#include "lockstep/prep/hrm/puzzle_division.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "lockstep/base/consecutive.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/prep/draw.hpp"
#include "lockstep/prep/hrm/maze.hpp"
#include "lockstep/prep/hrm/sudoku.hpp"

namespace lockstep::prep {

namespace {

using Tokens = std::span<const std::uint8_t>;

int side_of(Tokens grid) { return static_cast<int>(std::lround(std::sqrt(static_cast<double>(grid.size())))); }

/// A hash that is equal for equivalent puzzles and for few others; much cheaper than the canonical form. For a Sudoku,
/// it covers the sorted numbers of givens per row, per column and per digit.
std::size_t quick_key(PuzzleTask task, Tokens inputs, Tokens labels) {
  if (task == PuzzleTask::maze) return std::hash<std::string>{}(canonical_puzzle(task, inputs, labels));
  const auto side = static_cast<std::size_t>(side_of(inputs));
  std::array<std::string, 3> counts;
  for (auto& one : counts) one.assign(side, '\0');
  for (std::size_t cell = 0; cell < inputs.size(); ++cell) {
    if (inputs[cell] < 2) continue;  // a blank
    ++counts[0][cell / side];
    ++counts[1][cell % side];
    ++counts[2][inputs[cell] - 2u];
  }
  for (auto& one : counts) std::sort(one.begin(), one.end());
  if (counts[1] < counts[0]) std::swap(counts[0], counts[1]);  // transposition
  return std::hash<std::string>{}(counts[0] + counts[1] + counts[2]);
}

Tokens row_of(const std::vector<std::uint8_t>& all, std::int64_t cells, std::int64_t row) {
  return Tokens(all).subspan(row * cells, cells);
}

/// An index that finds equivalent puzzles.
class Known {
 public:
  explicit Known(PuzzleTask task) : task_(task) {}
  void add(const BasePuzzles& puzzles, std::int64_t row) {
    alike_.emplace(quick_key(task_, inputs(puzzles, row), labels(puzzles, row)), std::pair{&puzzles, row});
  }
  /// Whether the index holds an equivalent puzzle other than this row itself.
  bool has_twin_of(const BasePuzzles& puzzles, std::int64_t row, const std::string& canonical) const {
    const auto [first, last] = alike_.equal_range(quick_key(task_, inputs(puzzles, row), labels(puzzles, row)));
    return std::any_of(first, last, [&](const auto& entry) {
      const auto& [from, at] = entry.second;
      return !(from == &puzzles && at == row) &&
             canonical_puzzle(task_, inputs(*from, at), labels(*from, at)) == canonical;
    });
  }
  static Tokens inputs(const BasePuzzles& puzzles, std::int64_t row) {
    return row_of(puzzles.inputs, puzzles.cells, row);
  }
  static Tokens labels(const BasePuzzles& puzzles, std::int64_t row) {
    return row_of(puzzles.labels, puzzles.cells, row);
  }

 private:
  PuzzleTask task_;
  std::unordered_multimap<std::size_t, std::pair<const BasePuzzles*, std::int64_t>> alike_;
};

}  // namespace

std::string canonical_puzzle(PuzzleTask task, Tokens inputs, Tokens labels) {
  if (task == PuzzleTask::maze) return canonical_maze(side_of(inputs), {inputs.begin(), inputs.end()});
  SudokuGrid question(inputs.begin(), inputs.end()), answer(labels.begin(), labels.end());
  for (auto* grid : {&question, &answer})
    for (auto& token : *grid) --token;
  return canonical_sudoku(sudoku_order(inputs.size()), question, answer);
}

DividedPuzzles divide_puzzles(const BasePuzzles& table, const BasePuzzles& test, const PuzzleDivision& how) {
  const bool all = how.train == 0 || how.train >= table.size();
  std::vector<std::int64_t> train, left, val;
  if (all) {
    train = consecutive<std::int64_t>(table.size());
    if (how.val > 0) left = draw_permutation(table.size(), how.seed, "puzzle.validation");
  } else {
    train = draw_permutation(table.size(), how.seed, "puzzle.subsample");
    left.assign(train.begin() + how.train, train.end());
    train.resize(how.train);
  }
  if (how.val > 0) {
    Known known(how.task);
    for (const std::int64_t row : train) known.add(table, row);
    for (std::int64_t row = 0; row < test.size(); ++row) known.add(test, row);
    std::unordered_set<std::string> taken;
    for (const std::int64_t row : left) {
      if (std::ssize(val) == how.val) break;
      const std::string text = canonical_puzzle(how.task, Known::inputs(table, row), Known::labels(table, row));
      if (!known.has_twin_of(table, row, text) && taken.insert(text).second) val.push_back(row);
    }
    require_usage(std::ssize(val) == how.val && (!all || how.val < table.size()), "option val = ", how.val, ": of ",
                  table.size(), " puzzles of the training table, ", all ? table.size() : how.train,
                  " are for training, and ", val.size(),
                  " others are equivalent to no training, test or other validation puzzle; ask for fewer");
    if (all) {
      const std::unordered_set<std::int64_t> moved(val.begin(), val.end());
      std::erase_if(train, [&](std::int64_t row) { return moved.contains(row); });
    }
  }
  return {table.picked(train), table.picked(val)};
}

}  // namespace lockstep::prep
