#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/device/kernel_arrays.hpp"
#include "lockstep/models/hrm/hrm.hpp"
#include "lockstep/ops/halting.hpp"
#include "lockstep/tasks/hrm/puzzle_data.hpp"
#include "lockstep/tasks/hrm/puzzle_sampler.hpp"
#include "lockstep/tasks/hrm/puzzle_tries.hpp"
#include "lockstep/train/task.hpp"

namespace lockstep {

/// The halting rule and the objective.
struct HrmLoss {
  ops::TokenLoss tokens = ops::TokenLoss::stablemax;
  std::int64_t halt_max_steps = 16;  ///< most segments of one sequence
  double explore = 0.1;              ///< probability that a sequence must run a random minimum number of segments
  bool q_continue = true;            ///< false (TRM): halt when q_halt > 0, without a second inner call
  double decay = 1;                  ///< factor of the loss from one segment of a sequence to the next
};

/// exact_accuracy, accuracy, q_halt_accuracy and steps per counted sequence; lm_loss, q_halt_loss and q_continue_loss
/// per sequence. Names begin with `prefix`.
std::vector<Metric> score_metrics(const ops::HaltingScore& sum, double sequences, const std::string& prefix);

/// The carry: state that persists between steps, one row per slot of the global batch. Every rank stores all rows and
/// updates its own. The tensors lie on the weights' device; steps modify them in stream order.
struct HrmSlots {
  OwnedTensor z_h, z_l;                     ///< (slots, T, D) of the weights' dtype
  OwnedTensor steps, halted;                ///< i32 (slots); all slots start halted
  OwnedTensor inputs, labels, identifiers;  ///< i32 (slots, seq_len) twice, (slots): the current sequences
  // Results of steps:
  OwnedTensor puzzle_gradient;  ///< (slots, puzzle_width), gradient of the sum of losses
  Buffer report;                ///< in pinned host memory: the scores of the last even and the last odd step
  /// The scores of a step: (slots), valid between its end and the start of the step after the next.
  std::span<ops::HaltingScore> scores(std::int64_t step) const {
    const auto n = static_cast<std::size_t>(steps->size());
    return {reinterpret_cast<ops::HaltingScore*>(report.data()) + (step % 2 == 0 ? 0 : n), n};
  }
};

/// The hierarchical reasoning model and its puzzles.
///
/// A step takes a full batch; position p of an epoch is slot p mod batch of batch p / batch. A slot whose sequence has
/// halted starts its row of the batch; the other slots continue their sequences and discard the row.
///
/// Puzzles without an answer (ARC) are not samples; only solve() accepts them. Validation samples are the first
/// `eval_examples` validation puzzles, or test puzzles if the data set has no validation puzzles. Test samples are all
/// test puzzles. Metrics: exact_accuracy first, loss (token loss plus half the halting loss), accuracy,
/// q_halt_accuracy, lm_loss, q_halt_loss, steps; if the file has sources or ratings, exact.NAME, accuracy.NAME and
/// puzzles.NAME per source and per bin of ratings (NAME is rating.A-B); for ARC pass@1, pass@2, ... pass@1000, tasks
/// solved by the votes of their variants.
///
/// differs  the public code counts padded rows of an evaluation's last batch in q_halt_loss; here there is no padding
class HrmTask : public ShardTask {
 public:
  struct Options {
    HrmArch arch;  ///< the data set determines seq_len, vocab and identifiers
    HrmLoss loss;
    std::int64_t visits = 1;         ///< visits of every group per epoch
    std::int64_t eval_examples = 0;  ///< 0: all
    std::int64_t eval_segments = 0;  ///< 0: halt_max_steps
    Tries tries;                     ///< of evaluations
    bool eval_halt = false;          ///< a try ends when the network halts
    bool depth_curriculum = false;   ///< training starts with fewer cycles, see cycles_at()
    double puzzle_lr = 0;            ///< base learning rate of the puzzle embeddings; 0: optim.lr
    double puzzle_weight_decay = 0.1;
    DType dtype = DType::f32;
    std::uint64_t seed = 0;
  };
  /// errors  usage: see Tries::check
  HrmTask(Options options, PuzzleData data);

  const char* kind() const override { return "hrm"; }
  ParamStore& params() override { return network_.params(); }
  void move_to(Device device) override { network_.move_to(device); }
  std::int64_t size(Split split) const override;
  ShardLoss loss(Tape& tape, const Shard& shard) const override;
  const DrawnShard& draw(Arena& host, const Shard& shard) const override;
  bool draws() const override { return true; }
  RowSource* row_source() const override { return data_.train.empty() ? nullptr : data_.train.front().inputs.source(); }
  void reads(const Shard& shard, std::vector<std::int64_t>& rows) const override;
  void reads(Split split, std::int64_t first, std::int64_t count, std::vector<std::int64_t>& rows) const override {
    for (std::int64_t i = first; i < first + count; ++i) rows.push_back(sample_of(split, i).table_row());
  }
  std::int64_t least_shard() const override { return least_shard(network_.arch()); }
  static std::int64_t least_shard(const HrmArch& arch);
  std::unique_ptr<TrainingProgram> make_program(World& world, const RunConfig& config, int threads) override;
  bool evaluates(Split split) const override { return split != Split::train; }
  bool validates_on_test() const override { return data_.val.empty() && size(Split::test) > 0; }
  std::int64_t sum_count() const override;
  std::int64_t evaluation_block() const override;
  void begin_evaluation() override { ballots_.clear(); }
  void evaluate(Tape& tape, Split split, std::int64_t first, std::int64_t count, double* sums) const override;
  std::vector<Metric> metrics(Split split, const std::vector<double>& sums) const override;
  /// The most frequent answers: for each input token its most frequent answer in the training puzzles (ties: the lower
  /// token; the input itself if no training puzzle has that token). Given cells are copied, and all empty cells get the
  /// same token.
  std::vector<Baseline> baselines() const override;
  /// pass@K of ARC tasks, from the votes of their variants on all ranks; else see tries_metrics().
  std::vector<Metric> collective_metrics(Communicator& comm, Split split, int threads) const override;
  std::vector<std::string> collective_metric_names() const override;
  /// "150 puzzles, 8 segments"; with several tries, how they differ and how their answers are combined.
  std::string protocol(Split split) const override;
  SampleWork work() const override;
  /// A test puzzle, and the answer after each segment until it no longer changes.
  std::pair<std::string, std::string> picture() const override;
  void save(H5File& file) const override;
  std::uint64_t data_hash() const override { return data_.hash; }
  bool tied_to_data() const override { return data_.identifiers > 1; }

  const Options& options() const { return options_; }
  const Hrm& network() const { return network_; }
  const PuzzleData& data() const { return data_; }

  /// Allocates the slots of a training run and, if it fits, a copy of the training puzzles in GPU memory.
  /// errors  usage: the data do not fill a batch
  void begin_run(std::int64_t slots);
  /// The length of a depth curriculum.
  void set_run_steps(double steps) { run_steps_ = steps; }
  /// The cycles of a training step: all, or with a depth curriculum those of a stage, by the fraction of the run:
  ///
  ///   stage 1 below 0.3, stage 2 below 0.6, else stage 3 (HrmArch::cycles)
  ///
  /// source  Qasim, Zhang 2025, arXiv:2511.08653, sec. 3.3 (progressive depth curriculum): (1, 2), (2, 4) and (3, 6)
  ///         cycles. The thirds of other depths are by definition
  HrmCycles cycles_at(std::int64_t step) const;
  /// Prepares an epoch of training steps and returns its number of batches. Must not overlap loss().
  std::int64_t begin_epoch(std::int64_t epoch);
  const PuzzleSampler& sampler() const { return *sampler_; }
  HrmSlots& slots() { return *slots_; }
  /// Checks slots that were read from a checkpoint. errors  data, naming array and slot: a value outside the data's
  /// range
  void check_slots() const;

  /// Receives, after each segment of a puzzle, the puzzle's row, the segment's number from 1, the predicted tokens
  /// (seq_len) and the logits q_halt and q_continue. Returns whether the puzzle continues.
  using SegmentObserver = std::function<bool(std::int64_t row, std::int64_t segment,
                                             std::span<const std::int32_t> tokens, double q_halt, double q_continue)>;
  /// Returns the noise on value `index` of a row's initial states, those of z_H first, then those of z_L. Null: no
  /// noise.
  using StateNoise = std::function<double(std::int64_t row, std::uint64_t index)>;
  /// Runs at most `segments` segments on these puzzles and calls `see` after each. A puzzle that does not continue
  /// leaves the batch.
  void solve(Tape& tape, std::span<const std::int32_t> inputs, std::span<const std::int32_t> identifiers,
             std::int64_t segments, const SegmentObserver& see, const StateNoise& noise = {}) const;
  /// The test examples, with or without an answer.
  std::int64_t tests() const;
  PuzzleExample test(std::int64_t index) const { return example_of(Split::test, index); }
  /// The example of a sample.
  PuzzleExample sample_of(Split split, std::int64_t index) const;
  /// The output of the last of `segments` segments, from the initial states.
  Hrm::Output run_segments(Tape& tape, std::span<const std::int32_t> inputs, std::span<const std::int32_t> identifiers,
                           std::int64_t segments) const;

 protected:
  // Verification against reference files overrides these three.
  /// Reads the training examples of the batch's rows from slot `first` on.
  virtual void read_batch(const Shard& shard, std::int64_t first, std::span<PuzzleExample> rows) const;
  /// The minimum number of segments that exploration draws for a slot in this step; 0: none.
  virtual std::int64_t least_steps(const Shard& shard, std::int64_t slot) const;
  /// Receives a shard's output and the next call's q (empty without one). May enqueue work on the tape's stream, but
  /// must not wait for it.
  virtual void observe(Tape&, const Shard&, const Hrm::Output&, const Tensor& /*next_q*/) const {}

 private:
  struct Batch;
  /// A training example as kernels read it. Its tokens are copied to `host` if the data have no copy in GPU memory.
  ops::PuzzlePick pick(Arena& host, const PuzzleExample& example) const;
  /// The parts that hold the examples of a split other than training.
  const std::vector<PuzzlePart>& held_out(Split split) const;
  PuzzleExample example_of(Split split, std::int64_t index) const;
  /// Adds an answer, of which `correct` of `labelled` cells are right, to the sums.
  void add(const PuzzleExample& example, std::int64_t labelled, std::int64_t correct, double* sums) const;
  std::span<const std::int64_t> answered(Split split) const;
  /// The most likely token of each cell, (B, seq_len).
  void most_likely(const Tensor& logits, std::span<std::int32_t> tokens) const;

  Options options_;
  PuzzleData data_;
  /// Examples with an answer: of the validation parts, and of the test parts.
  std::vector<std::int64_t> answered_val_, answered_test_;
  Hrm network_;
  std::optional<HrmSlots> slots_;  ///< loss() writes the rows of its shard
  std::optional<PuzzleSampler> sampler_;
  /// Inputs and labels of each training part in GPU memory; empty on a CPU, or if the host copies those of each step.
  std::vector<Resident<std::uint8_t>> tokens_;
  PuzzleData::Rows pictured_;  ///< the first test sample
  double run_steps_ = 0;
  /// Ballots of the current evaluation. Mutable: threads that share this task append to it in evaluate() const, under a
  /// lock.
  mutable std::vector<ArcBallot> ballots_;
};

}  // namespace lockstep
