#include "lockstep/tasks/hrm/arc_vote.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/samples/puzzle_variant.hpp"

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
    const auto line = field.subspan(row * kSide, width);
    width = static_cast<int>(std::ranges::find_if_not(line, is_colour) - line.begin());
    if ((row + 1) * width > best.first * best.second) best = {row + 1, width};
  }
  return best;
}

/// The position of the truth among the candidates of one test input, from 0; kNever if no variant voted for it.
std::int64_t position_of_truth(std::span<const ArcBallot> ballots) {
  const std::vector<ArcCandidate> candidates = arc_candidates(ballots);
  const auto found =
      std::ranges::find_if(candidates, [&](const ArcCandidate& c) { return c.answer == ballots.front().truth; });
  return found == candidates.end() ? kNever : found - candidates.begin();
}

}  // namespace

std::uint64_t ArcAnswer::hash() const { return hash64(cells.data(), cells.size(), static_cast<std::uint64_t>(rows)); }

ArcAnswer arc_answer(const ArcName& name, std::span<const std::int32_t> field) {
  require(field.size() == kArcCells, "an ARC field has ", kArcCells, " cells, not ", field.size());
  const auto [rows, columns] = corner_rectangle(field);
  std::array<std::uint8_t, 10> original{};
  for (std::uint8_t c = 0; c < 10; ++c) original[name.colours[c]] = c;
  std::vector<std::uint8_t> grid;
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) grid.push_back(original[field[r * kSide + c] - kColour]);
  const int inverse = kDihedralInverse[name.dihedral];
  ArcAnswer answer{rows, columns, std::vector<std::uint8_t>(grid.size())};
  dihedral(inverse, rows, columns, grid, answer.cells);
  if (dihedral_turns(inverse)) std::swap(answer.rows, answer.columns);
  return answer;
}

std::vector<ArcCandidate> arc_candidates(std::span<const ArcBallot> ballots) {
  static const std::uint64_t kEmpty = ArcAnswer{}.hash();
  std::vector<ArcCandidate> candidates;  // ballots are sorted, so equal answers are adjacent
  for (const ArcBallot& b : ballots) {
    if (b.answer == kEmpty) continue;
    if (candidates.empty() || candidates.back().answer != b.answer) candidates.push_back({b.answer, 0, 0});
    candidates.back().votes += 1;
    candidates.back().confidence += 1 / (1 + std::exp(-b.q_halt));
  }
  std::ranges::stable_sort(candidates, [](const ArcCandidate& a, const ArcCandidate& b) {
    return a.votes != b.votes ? a.votes > b.votes
                              : a.confidence > b.confidence;  // with equal votes, sums compare like means
  });
  return candidates;
}

ArcName read_arc_name(std::string_view name) {
  std::string plain(name);  // TRM's builder writes NAME|||t3|||0182736459
  for (std::size_t at = 0; (at = plain.find("|||")) != std::string::npos;) plain.replace(at, 3, "_");
  name = plain;
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
  out.length = name.size();
  return out;
}

ArcBallot arc_ballot(const ArcName& name, std::span<const std::int32_t> inputs, std::span<const std::int32_t> labels,
                     std::span<const std::int32_t> answer, double q_halt) {
  return {name.task, arc_answer(name, inputs).hash(), arc_answer(name, answer).hash(), arc_answer(name, labels).hash(),
          q_halt};
}

std::vector<std::pair<int, double>> arc_pass_rates(std::vector<ArcBallot> ballots) {
  if (ballots.empty()) return {};
  std::ranges::sort(ballots);
  std::array<std::int64_t, kAttempts.size()> solved{};
  std::int64_t tasks = 0;
  for (auto task = ballots.begin(); task != ballots.end(); ++tasks) {
    const auto next = std::find_if(task, ballots.end(), [&](const ArcBallot& b) { return b.task != task->task; });
    std::int64_t worst = 0;  // the last place of the truth over the task's inputs
    while (task != next) {
      const auto end = std::find_if(task, next, [&](const ArcBallot& b) { return b.input != task->input; });
      worst = std::max(worst, position_of_truth({task, end}));
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
