#include "lockstep/tasks/hrm/puzzle_tries.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "lockstep/base/permutation.hpp"
#include "lockstep/base/philox.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/tree_reduce.hpp"
#include "lockstep/samples/puzzle_variant.hpp"
#include "tasks/hrm/hrm_prediction.hpp"
#include "tasks/hrm/puzzle_rules.hpp"
#include "tasks/parallel_blocks.hpp"

namespace lockstep {
namespace {

constexpr std::int64_t kMazeImages = 8;

/// Maps puzzles to the images that tries solve, and answers back.
class Images {
 public:
  Images(const PuzzleData& data, const Tries& tries) : maze_(data.task == "maze"), tries_(tries) {
    if (tries.count > 1 && tries.noise == 0)
      variants_.emplace(maze_ ? PuzzleTask::maze : PuzzleTask::sudoku, data.seq_len, tries.seed);
  }
  /// The puzzle that a try solves.
  void image(std::int64_t puzzle, std::int64_t t, std::span<const std::uint8_t> from,
             std::span<std::uint8_t> to) const {
    if (!changes(t)) {
      std::ranges::copy(from, to.begin());
      return;
    }
    std::vector<std::uint8_t> unused(from.size());
    variants_->apply(static_cast<std::uint64_t>(puzzle), variant(puzzle, t), from, from, to, unused);
  }
  /// The answer to the puzzle from the answer to its image.
  void undo(std::int64_t puzzle, std::int64_t t, std::span<const std::uint8_t> from, std::span<std::uint8_t> to) const {
    if (changes(t))
      variants_->undo(static_cast<std::uint64_t>(puzzle), variant(puzzle, t), from, to);
    else
      std::ranges::copy(from, to.begin());
  }

 private:
  bool changes(std::int64_t t) const { return t > 0 && variants_.has_value(); }
  std::uint64_t variant(std::int64_t puzzle, std::int64_t t) const {
    if (!maze_) return static_cast<std::uint64_t>(t);
    return 1 + static_cast<std::uint64_t>(
                   Permutation(kMazeImages - 1, tries_.seed, static_cast<std::uint64_t>(puzzle))(t - 1));
  }

  bool maze_;
  const Tries& tries_;
  std::optional<PuzzleVariants> variants_;
};

/// One try at one of the puzzles of a call.
struct Pair {
  std::int64_t puzzle, t;
};

/// The fixed part of a PuzzleAnswer that ranks exchange; its tokens follow, one byte each.
struct AnswerHead {
  std::int64_t segments, changed, halted;
  double q_halt, q_continue;
};

/// Answers `pairs` and maps the answers back. Returns an AnswerHead and the tokens of each.
std::vector<std::byte> answer_pairs(const HrmTask& model, std::span<const Pair> pairs, std::int64_t first,
                                    std::span<const std::int32_t> inputs, std::span<const std::int32_t> identifiers,
                                    const Images& images, const Tries& tries, const Thinking& thinking, int threads) {
  const auto cells = static_cast<std::size_t>(model.data().seq_len);
  std::vector<std::int32_t> questions, ids;
  std::vector<std::uint8_t> from(cells), to(cells);
  for (const auto& [puzzle, t] : pairs) {
    std::ranges::copy(inputs.subspan(static_cast<std::size_t>(puzzle) * cells, cells), from.begin());
    images.image(first + puzzle, t, from, to);
    questions.insert(questions.end(), to.begin(), to.end());
    ids.push_back(identifiers[puzzle]);
  }
  HrmTask::StateNoise noise;
  if (tries.noise > 0)
    noise = [&](std::int64_t row, std::uint64_t index) {
      const auto& [puzzle, t] = pairs[row];
      if (t == 0) return 0.0;
      return tries.noise *
             Philox(tries.seed, static_cast<std::uint64_t>(t), "hrm.try", static_cast<std::uint64_t>(first + puzzle))
                 .normal(index);
    };
  const std::vector<PuzzleAnswer> solved = solve_puzzles(model, questions, ids, thinking, threads, noise);
  std::vector<std::byte> packed(pairs.size() * (sizeof(AnswerHead) + cells));
  std::byte* at = packed.data();
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const PuzzleAnswer& a = solved[i];
    std::ranges::copy(a.answer, from.begin());
    images.undo(first + pairs[i].puzzle, pairs[i].t, from, to);
    const AnswerHead head = {a.segments, a.changed, a.halted, a.q_halt, a.q_continue};
    std::memcpy(at, &head, sizeof(head));
    std::memcpy(at + sizeof(head), to.data(), cells);
    at += sizeof(head) + cells;
  }
  return packed;
}

PuzzleAnswer unpacked(const std::byte* at, std::size_t cells) {
  AnswerHead head;
  std::memcpy(&head, at, sizeof(head));
  const auto* tokens = reinterpret_cast<const std::uint8_t*>(at + sizeof(head));
  return {.answer = {tokens, tokens + cells},
          .segments = head.segments,
          .changed = head.changed,
          .halted = head.halted,
          .q_halt = head.q_halt,
          .q_continue = head.q_continue};
}

/// 1, 2, 4, ... below `count`, and `count`.
std::vector<std::int64_t> curve(std::int64_t count) {
  std::vector<std::int64_t> points;
  for (std::int64_t k = 1; k < count; k *= 2) points.push_back(k);
  points.push_back(count);
  return points;
}

}  // namespace

void Tries::check(const std::string& task) const {
  if (count == 1) return;
  require_usage(task != "arc", "option tries = ", count,
                ": puzzles of task arc have no common symmetries, and the variants of a task in its data set already "
                "vote; leave tries at 1");
  require_usage(task != "maze" || noise > 0 || count <= kMazeImages, "option tries = ", count, ": a maze has ",
                kMazeImages, " symmetries; ask for at most as many tries, or for noise instead of symmetries");
}

void PuzzleVote::add(PuzzleAnswer answer, bool follows_rules) {
  ++tries_;
  segments_ += answer.segments;
  const double right = 1 / (1 + std::exp(-answer.q_halt));
  auto found = std::ranges::find_if(candidates_, [&](const Candidate& c) { return c.answer.answer == answer.answer; });
  if (found == candidates_.end()) {
    candidates_.push_back({.answer = std::move(answer), .follows_rules = follows_rules});
    found = candidates_.end() - 1;
  }
  found->votes += 1;
  if (right >= 0) found->confidence += right;  // a NaN adds nothing
  for (std::size_t i = 0; i < candidates_.size(); ++i)
    if (better(candidates_[i], candidates_[best_])) best_ = i;
}

bool PuzzleVote::better(const Candidate& a, const Candidate& b) const {
  if (rules_ && a.follows_rules != b.follows_rules) return a.follows_rules;
  if (rules_ && a.follows_rules) return &a < &b;
  if (weight(a) != weight(b)) return weight(a) > weight(b);
  if (a.confidence != b.confidence) return a.confidence > b.confidence;
  return &a < &b;
}

bool PuzzleVote::decided(std::int64_t remaining) const {
  if (remaining == 0) return true;
  if (rules_) return candidates_[best_].follows_rules;
  constexpr double kRounding = 1e-6;
  double second = 0;
  for (std::size_t i = 0; i < candidates_.size(); ++i)
    if (i != best_) second = std::max(second, weight(candidates_[i]));
  return weight(candidates_[best_]) > second + static_cast<double>(remaining) + kRounding;
}

std::vector<PuzzleAnswer> solve_puzzles(const HrmTask& model, std::span<const std::int32_t> inputs,
                                        std::span<const std::int32_t> identifiers, const Thinking& thinking,
                                        int threads, const HrmTask::StateNoise& noise) {
  std::vector<PuzzleAnswer> solved(identifiers.size());
  const auto cells = static_cast<std::size_t>(model.data().seq_len);
  const std::int64_t most = thinking.segments > 0 ? thinking.segments : model.options().eval_segments;
  const auto solve = [&](Tape& tape, std::int64_t begin, std::int64_t rows) {
    const auto first = static_cast<std::size_t>(begin), count = static_cast<std::size_t>(rows);
    HrmTask::StateNoise own;
    if (noise) own = [&](std::int64_t row, std::uint64_t index) { return noise(begin + row, index); };
    const auto see = [&](std::int64_t row, std::int64_t segment, std::span<const std::int32_t> tokens, double q_halt,
                         double q_continue) {
      PuzzleAnswer& p = solved[first + static_cast<std::size_t>(row)];
      if (!std::ranges::equal(tokens, p.answer)) {
        p.answer.assign(tokens.begin(), tokens.end());
        p.changed = segment;
      }
      p.segments = segment;
      p.q_halt = q_halt;
      p.q_continue = q_continue;
      if (p.halted == 0 && q_halt > (model.options().loss.q_continue ? q_continue : 0)) p.halted = segment;
      return !thinking.halt || p.halted == 0;
    };
    model.solve(tape, inputs.subspan(first * cells, count * cells), identifiers.subspan(first, count), most, see, own);
  };
  const ParamStore& params = model.network().params();
  parallel_blocks(params.device(), params.storage(), threads, std::ssize(solved), model.evaluation_block(), solve);
  return solved;
}

std::vector<PuzzleVote> try_puzzles(Communicator& comm, const HrmTask& model, std::int64_t first,
                                    std::span<const std::int32_t> inputs, std::span<const std::int32_t> identifiers,
                                    const Tries& tries, const Thinking& thinking, int threads,
                                    const TriesObserver& see) {
  constexpr std::int64_t kMostPairs = std::int64_t{1} << 16;  // of a wave
  const auto puzzles = std::ssize(identifiers);
  const auto cells = static_cast<std::size_t>(model.data().seq_len);
  const Images images(model.data(), tries);
  std::vector<PuzzleVote> votes(identifiers.size(), PuzzleVote(tries.combine));
  if (puzzles == 0) return votes;
  const std::int64_t longest = std::max<std::int64_t>(1, kMostPairs / puzzles);
  const std::vector<std::int64_t> points = curve(tries.count);
  for (std::int64_t begin = 0, end = 0; begin < tries.count; begin = end) {
    std::vector<std::int64_t> open;
    for (std::int64_t p = 0; p < puzzles; ++p)
      if (begin == 0 || !votes[p].decided(tries.count - begin)) open.push_back(p);
    // A wave adds a quarter of the tries so far, so that puzzles leave soon after they are decided, but at least a
    // block of pairs. It ends at each point of the curve.
    const std::int64_t wave =
        std::max(begin / 4, model.evaluation_block() / std::max<std::int64_t>(1, std::ssize(open)));
    end = std::min({tries.count, begin + std::clamp<std::int64_t>(wave, 1, longest),
                    static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(begin) + 1))});
    std::vector<Pair> pairs;
    for (const std::int64_t p : open)
      for (std::int64_t t = begin; t < end; ++t) pairs.push_back({p, t});
    if (!pairs.empty()) {
      const std::int64_t size = model.evaluation_block(), blocks = (std::ssize(pairs) + size - 1) / size;
      const ShardRange mine = shards_of(blocks, comm.rank(), comm.size());
      const std::int64_t from = std::min(mine.begin * size, std::ssize(pairs)),
                         to = std::min(mine.end * size, std::ssize(pairs));
      const std::span own = std::span<const Pair>(pairs).subspan(from, to - from);
      const Gathered all = comm.all_gather(
          answer_pairs(model, own, first, inputs, identifiers, images, tries, thinking, threads), "answers of tries");
      const std::byte* at = all.bytes.data();
      for (const auto& [puzzle, t] : pairs) {
        PuzzleAnswer answer = unpacked(at, cells);
        at += sizeof(AnswerHead) + cells;
        const bool follows =
            tries.combine == "rules" &&
            puzzle_defect(model.data().task, inputs.subspan(puzzle * cells, cells), answer.answer).empty();
        votes[puzzle].add(std::move(answer), follows);
      }
    }
    if (see && std::ranges::binary_search(points, end)) see(end, votes);
  }
  return votes;
}

std::vector<std::string> tries_metric_names(const Tries& tries) {
  std::vector<std::string> names;
  if (tries.count == 1) return names;
  for (const std::int64_t k : curve(tries.count)) {
    names.push_back(join("exact.", tries.noise > 0 ? "noise." : "", tries.combine, "@", k));
    names.push_back(join("segments@", k));
  }
  return names;
}

std::vector<Metric> tries_metrics(Communicator& comm, const HrmTask& model, Split split, int threads) {
  const Tries& tries = model.options().tries;
  const std::vector<std::string> names = tries_metric_names(tries);
  if (names.empty()) return {};
  const std::vector<std::int64_t> points = curve(tries.count);
  std::vector<double> exact(points.size()), segments(points.size());
  double counted = 0;
  const auto cells = static_cast<std::size_t>(model.data().seq_len);
  for (std::int64_t first = 0; first < model.size(split); first += kTriedPuzzles) {
    const auto count = static_cast<std::size_t>(std::min(kTriedPuzzles, model.size(split) - first));
    std::vector<PuzzleExample> examples;
    for (std::size_t i = 0; i < count; ++i)
      examples.push_back(model.sample_of(split, first + static_cast<std::int64_t>(i)));
    const PuzzleData::Rows rows = model.data().fetch(examples);
    const auto see = [&](std::int64_t k, std::span<const PuzzleVote> votes) {
      const auto point = static_cast<std::size_t>(std::ranges::lower_bound(points, k) - points.begin());
      for (std::size_t i = 0; i < count; ++i) {
        std::size_t labelled = 0, right = 0;
        for (std::size_t c = 0; c < cells; ++c) {
          labelled += rows.labels[i * cells + c] >= 0;
          right += rows.labels[i * cells + c] == votes[i].best().answer[c];
        }
        if (labelled == 0) continue;
        counted += point == 0;
        exact[point] += labelled == right;
        segments[point] += static_cast<double>(votes[i].segments());
      }
    };
    try_puzzles(comm, model, first, rows.inputs, rows.identifiers, tries,
                {model.options().eval_segments, model.options().eval_halt}, threads, see);
  }
  std::vector<Metric> metrics;
  for (std::size_t i = 0; i < points.size(); ++i) {
    metrics.push_back({names[2 * i], exact[i] / std::max(counted, 1.0), true});
    metrics.push_back({names[2 * i + 1], segments[i] / std::max(counted, 1.0)});
  }
  return metrics;
}

}  // namespace lockstep
