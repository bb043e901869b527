#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/split.hpp"
#include "lockstep/report/metric.hpp"

namespace lockstep {

class Communicator;
class HrmTask;

/// When the computation for a puzzle stops.
struct Thinking {
  std::int64_t segments = 0;  ///< at most; 0: as in evaluations
  bool halt = false;          ///< stop a puzzle when the network halts
};

/// The answer of one try.
struct PuzzleAnswer {
  std::vector<std::int32_t> answer;   ///< tokens
  std::int64_t segments = 0;          ///< number of segments run
  std::int64_t changed = 0;           ///< last segment that changed the answer
  std::int64_t halted = 0;            ///< first segment after which the network halts; 0: none
  double q_halt = 0, q_continue = 0;  ///< logits after the last segment
};

/// Several tries at each puzzle, and how their answers are combined. Try 0 solves the puzzle itself. Each other try
/// solves an image of the puzzle under a random symmetry, whose answer is mapped back, or starts from other states. The
/// symmetry or the noise of try t of puzzle p is a function of (seed, p, t).
struct Tries {
  std::int64_t count = 1;
  std::string combine = "halting";  ///< see PuzzleVote
  double noise = 0;  ///< 0: symmetries; else the deviation of normal noise on the initial states, without symmetries
  std::uint64_t seed = 0;

  /// errors  usage: several tries of ARC tasks, whose variants vote already; more tries than a maze has symmetries
  ///         (8, unless the tries differ by noise)
  void check(const std::string& task) const;
};

/// Collects the answers of one puzzle's tries, added in order, and selects the best:
///
///   votes    the answer that most tries give; ties: the larger sum of sigma(q_halt)
///   halting  the answer with the largest sum of sigma(q_halt), the network's estimate that the answer is right
///   rules    an answer that satisfies the rules of the puzzle and its givens; without one, as `halting`
///
/// Remaining ties go to the answer that came first.
class PuzzleVote {
 public:
  explicit PuzzleVote(const std::string& combine) : votes_(combine == "votes"), rules_(combine == "rules") {}
  /// follows_rules  whether the answer satisfies the rules and the givens
  void add(PuzzleAnswer answer, bool follows_rules);
  /// The answer so far, with the values of the first try that gave it.
  const PuzzleAnswer& best() const { return candidates_[best_].answer; }
  std::int64_t agreeing() const { return candidates_[best_].votes; }  ///< tries that gave best()
  std::int64_t tries() const { return tries_; }
  std::int64_t segments() const { return segments_; }  ///< segments run by all tries
  /// Whether no answers of `remaining` further tries can change best().
  bool decided(std::int64_t remaining) const;

 private:
  struct Candidate {
    PuzzleAnswer answer;
    std::int64_t votes = 0;
    double confidence = 0;
    bool follows_rules = false;
  };
  double weight(const Candidate& c) const { return votes_ ? static_cast<double>(c.votes) : c.confidence; }
  bool better(const Candidate& a, const Candidate& b) const;
  bool votes_, rules_;
  std::vector<Candidate> candidates_;  ///< in the order of their first tries
  std::size_t best_ = 0;
  std::int64_t tries_ = 0, segments_ = 0;
};

/// Receives the votes of all puzzles after 1, 2, 4, ... and all tries.
using TriesObserver = std::function<void(std::int64_t tries, std::span<const PuzzleVote> votes)>;

/// Solves puzzles by several tries each. Blocks of (undecided puzzle, try) pairs are distributed over ranks and
/// threads; the contents of a block depend on neither. Collective; the same bits on all ranks, and on any number of
/// ranks and threads.
///
/// shapes  inputs (B, seq_len), identifiers (B); the puzzles have the numbers first, first + 1, ...
std::vector<PuzzleVote> try_puzzles(Communicator& comm, const HrmTask& model, std::int64_t first,
                                    std::span<const std::int32_t> inputs, std::span<const std::int32_t> identifiers,
                                    const Tries& tries, const Thinking& thinking, int threads,
                                    const TriesObserver& see = {});
/// Callers pass try_puzzles() at most this many puzzles at a time, which bounds its memory.
inline constexpr std::int64_t kTriedPuzzles = 1024;

/// Accuracy against compute, of the samples of a split with the task's own tries: exact.RULE@K, the share of puzzles
/// that K tries solve, and segments@K, the mean number of segments that they ran per puzzle; K = 1, 2, 4, ... and all
/// tries. RULE is `combine`, with the prefix `noise.` if the tries differ by noise. Empty with a single try.
/// Collective.
std::vector<Metric> tries_metrics(Communicator& comm, const HrmTask& model, Split split, int threads);
std::vector<std::string> tries_metric_names(const Tries& tries);

}  // namespace lockstep
