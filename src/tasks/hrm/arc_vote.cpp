#include "lockstep/tasks/hrm/arc_vote.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/base/puzzle_variant.hpp"

namespace lockstep {

namespace {

constexpr int kSide = 30;
static_assert(kSide * kSide == kArcCells);
constexpr std::int32_t kColour = 2;  // token of colour 0
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
constexpr std::array<int, 5> kAttempts = {1, 2, 10, 100, 1000};

bool is_colour(std::int32_t token) { return token >= kColour && token < kColour + 10; }

/// Rows and columns of the largest rectangle of colours at the top left.
std::pair<int, int> corner_rectangle(std::span<const std::int32_t> field) {
  std::pair<int, int> best{0, 0};
  int width = kSide;
  for (int row = 0; row < kSide && width > 0; ++row) {
    const auto line = field.subspan(static_cast<std::size_t>(row * kSide), static_cast<std::size_t>(width));
    width = static_cast<int>(std::find_if_not(line.begin(), line.end(), is_colour) - line.begin());
    if ((row + 1) * width > best.first * best.second) best = {row + 1, width};
  }
  return best;
}

std::uint64_t grid_hash(const ArcName& name, std::span<const std::int32_t> field) {
  const auto [rows, columns] = corner_rectangle(field);
  std::array<std::uint8_t, 10> original{};
  for (std::uint8_t c = 0; c < 10; ++c) original[name.colours[c]] = c;
  std::array<std::uint8_t, kSide * kSide> grid, back;
  const auto cells = static_cast<std::size_t>(rows * columns);
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c)
      grid[static_cast<std::size_t>(r * columns + c)] =
          original[static_cast<std::size_t>(field[static_cast<std::size_t>(r * kSide + c)] - kColour)];
  const int inverse = kDihedralInverse[name.dihedral];
  dihedral(inverse, rows, columns, std::span(grid).first(cells), std::span(back).first(cells));
  const int height = dihedral_turns(inverse) ? columns : rows;
  return hash64(back.data(), cells, static_cast<std::uint64_t>(height));
}

struct Candidate {
  std::uint64_t answer;
  double votes, confidence;
};

/// The place of the truth among the candidates of one test input, from 0; kNever if no variant voted for it.
std::int64_t place_of_truth(std::span<const ArcBallot> ballots) {
  std::vector<Candidate> candidates;  // ballots are sorted, so equal answers are adjacent
  for (const ArcBallot& b : ballots) {
    if (candidates.empty() || candidates.back().answer != b.answer) candidates.push_back({b.answer, 0, 0});
    candidates.back().votes += 1;
    candidates.back().confidence += 1 / (1 + std::exp(-b.q_halt));
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.votes != b.votes ? a.votes > b.votes
                              : a.confidence > b.confidence;  // with equal votes, sums compare like means
  });
  const auto found = std::find_if(candidates.begin(), candidates.end(),
                                  [&](const Candidate& c) { return c.answer == ballots.front().truth; });
  return found == candidates.end() ? kNever : found - candidates.begin();
}

}  // namespace

ArcName read_arc_name(std::string_view name) {
  constexpr std::size_t kSuffix = 14;  // _t3_0182736459
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  ArcName out;
  if (name.size() > kSuffix) {
    const std::string_view tail = name.substr(name.size() - kSuffix);
    if (tail.substr(0, 2) == "_t" && tail[2] >= '0' && tail[2] <= '7' && tail[3] == '_' &&
        std::all_of(tail.begin() + 4, tail.end(), digit)) {
      name.remove_suffix(kSuffix);
      out.dihedral = static_cast<std::uint8_t>(tail[2] - '0');
      std::transform(tail.begin() + 4, tail.end(), out.colours.begin(),
                     [](char c) { return static_cast<std::uint8_t>(c - '0'); });
    }
  }
  out.task = hash64(name);
  return out;
}

ArcBallot arc_ballot(const ArcName& name, std::span<const std::int32_t> inputs, std::span<const std::int32_t> labels,
                     std::span<const std::int32_t> answer, double q_halt) {
  for (const auto& field : {inputs, labels, answer})
    require(field.size() == kArcCells, "an ARC field has ", kArcCells, " cells, not ", field.size());
  return {name.task, grid_hash(name, inputs), grid_hash(name, answer), grid_hash(name, labels), q_halt};
}

std::vector<std::pair<int, double>> arc_pass_rates(std::vector<ArcBallot> ballots) {
  if (ballots.empty()) return {};
  std::sort(ballots.begin(), ballots.end());
  std::array<std::int64_t, kAttempts.size()> solved{};
  std::int64_t tasks = 0;
  for (auto task = ballots.begin(); task != ballots.end(); ++tasks) {
    const auto next = std::find_if(task, ballots.end(), [&](const ArcBallot& b) { return b.task != task->task; });
    std::int64_t worst = 0;  // the last place of the truth over the task's inputs
    while (task != next) {
      const auto end = std::find_if(task, next, [&](const ArcBallot& b) { return b.input != task->input; });
      worst = std::max(worst, place_of_truth({task, end}));
      task = end;
    }
    for (std::size_t k = 0; k < kAttempts.size(); ++k) solved[k] += worst < kAttempts[k];
  }
  std::vector<std::pair<int, double>> rates;
  for (std::size_t k = 0; k < kAttempts.size(); ++k)
    rates.emplace_back(kAttempts[k], static_cast<double>(solved[k]) / static_cast<double>(tasks));
  return rates;
}

}  // namespace lockstep
