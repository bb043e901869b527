#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/puzzle_data.hpp"
#include "lockstep/data/puzzle_sampler.hpp"
#include "lockstep/models/hrm.hpp"
#include "lockstep/models/model.hpp"
#include "lockstep/ops/halting.hpp"

namespace lockstep {

/// How sequences are halted, and what is minimised.
struct HrmLoss {
  ops::TokenLoss tokens = ops::TokenLoss::stablemax;
  std::int64_t halt_max_steps = 16;  ///< segments that a sequence gets at most
  double explore = 0.1;              ///< probability that a sequence must do a random least number of them
  bool q_continue = true;            ///< false (TRM): halt when q_halt > 0, no second inner call
};

/// accuracy, exact_accuracy, q_halt_accuracy, steps per counted sequence; lm_loss, q_halt_loss, q_continue_loss per
/// sequence. names begin with `prefix`
std::vector<Metric> score_metrics(const ops::HaltingScore& sum, double sequences, const std::string& prefix);

/// What lives on from step to step, one row per slot of the global batch: every rank has all rows and touches its own. On the
/// weights' device, where steps change it in their order.
struct HrmSlots {
  OwnedTensor z_h, z_l;                     ///< (slots, T, D) of the weights' dtype
  OwnedTensor steps, halted;                ///< i32 (slots); all are halted at first
  OwnedTensor inputs, labels, identifiers;  ///< i32 (slots, seq_len) twice, (slots): what each works on
  // Of the last step alone:
  OwnedTensor puzzle_gradient;  ///< (slots, puzzle_width): gradient of the sum of losses
  // The same in the host's memory, to be read between the end of a step and the start of the next one:
  Buffer report;                        ///< holds these two
  std::span<ops::HaltingScore> scores;  ///< (slots)
  std::span<std::int32_t> used;         ///< (slots): the identifiers once more
};

/// The hierarchical reasoning model with its puzzles, as the trainer sees it.
///
/// A step takes a full batch; position p of an epoch is slot p mod batch of batch p / batch. A slot whose sequence has
/// halted begins with its row of the batch, the others go on with what they have and their row is discarded.
///
/// Validation samples are the first `eval_examples` test puzzles, test samples all of them. Figures: exact_accuracy
/// first, loss (tokens' and half the halting loss), accuracy, q_halt_accuracy, lm_loss, q_halt_loss, steps; and where
/// the file tells sources or ratings exact.NAME, accuracy.NAME, puzzles.NAME of each source and bin of ratings (NAME is
/// rating.A-B); of ARC, pass@1, pass@2, ... pass@1000: tasks solved by the votes of their variants. differs  the public code counts padded rows of an evaluation's last batch in q_halt_loss; there are none
/// here.
class HrmModel : public Model {
 public:
  struct Options {
    HrmArch arch;  ///< seq_len, vocab, identifiers are the data's
    HrmLoss loss;
    std::int64_t visits = 1;         ///< of every group per epoch
    std::int64_t eval_examples = 0;  ///< 0: all
    std::int64_t eval_segments = 0;  ///< 0: halt_max_steps
    double puzzle_lr = 0;            ///< base rate of the puzzle embeddings; 0: the others'
    double puzzle_weight_decay = 0.1;
    DType dtype = DType::f32;
    std::uint64_t seed = 0;
  };
  HrmModel(Options options, PuzzleData data);

  const char* kind() const override { return "hrm"; }
  ParamStore& params() override { return network_.params(); }
  void move_to(Device device) override { network_.move_to(device); }
  std::int64_t size(Split split) const override;
  ShardLoss loss(Tape& tape, const Shard& shard) const override;
  std::int64_t least_shard() const override;
  std::int64_t sum_count() const override;
  std::int64_t evaluation_block() const override;
  void begin_evaluation() override { ballots_.clear(); }
  void evaluate(Tape& tape, Split split, std::int64_t first, std::int64_t count, double* sums) const override;
  std::vector<Metric> metrics(Split split, const std::vector<double>& sums) const override;
  /// What evaluate() has noted of this rank's samples since begin_evaluation(): the votes of ARC variants, none of other tasks.
  const std::vector<ArcBallot>& ballots() const { return ballots_; }
  double flops_per_sample() const override;
  /// A test puzzle, and the answer after each segment until it no longer changes.
  std::pair<std::string, std::string> picture() const override;
  void save(H5File& file) const override;
  std::uint64_t data_hash() const override { return data_.hash; }

  const Options& options() const { return options_; }
  const Hrm& network() const { return network_; }
  const PuzzleData& data() const { return data_; }

  /// Makes room for steps of `slots` sequences. errors  Error (usage): the data do not fill a batch
  void begin_run(std::int64_t slots);
  /// Prepares an epoch of training steps; not to be called while loss() runs. Returns its batches.
  std::int64_t begin_epoch(std::int64_t epoch);
  const PuzzleSampler& sampler() const { return *sampler_; }
  HrmSlots& slots() { return *slots_; }
  /// errors  Error (data) when slots that were read from a checkpoint hold what the data cannot: names what and where
  void check_slots() const;

  /// Solves given puzzles: after each of `segments` segments `see` gets its number from 1, the cells' tokens (B, seq_len)
  /// and the halting logits (B).
  using SegmentObserver =
      std::function<void(std::int64_t segment, std::span<const std::int32_t> tokens, std::span<const double> q_halt)>;
  void solve(Tape& tape, std::span<const std::int32_t> inputs, std::span<const std::int32_t> identifiers,
             std::int64_t segments, const SegmentObserver& see) const;
  /// logits and q (B, 2) of the last of `segments` segments from a fresh start.
  Hrm::Output run_segments(Tape& tape, std::span<const std::int32_t> inputs, std::span<const std::int32_t> identifiers,
                           std::int64_t segments) const;

 protected:
  /// The batch's rows for slots from `first` on, as many as `rows` has, in the host's memory.
  virtual void read_batch(Arena& scratch, const Shard& shard, std::int64_t first, const ops::SequenceData& rows) const;
  /// The least number of segments that exploration asks of a slot in this step; 0: none.
  virtual std::int64_t least_steps(const Shard& shard, std::int64_t slot) const;
  /// Sees a shard's values: logits, q and the next call's q (empty without one). May give work to the tape's stream, but not
  /// wait for it.
  virtual void observe(Tape&, const Shard&, const Hrm::Output&, const Tensor& /*next_q*/) const {}

 private:
  PuzzleExample test_example(std::int64_t index) const;
  /// The most likely token of each cell, (B, seq_len).
  void most_likely(const Tensor& logits, std::span<std::int32_t> tokens) const;

  Options options_;
  PuzzleData data_;
  Hrm network_;
  std::int64_t test_examples_ = 0;
  std::optional<HrmSlots> slots_;  ///< loss() writes the shard's own rows
  std::optional<PuzzleSampler> sampler_;
  mutable std::vector<ArcBallot> ballots_;  ///< of an evaluation under way, by all threads
};

}  // namespace lockstep
