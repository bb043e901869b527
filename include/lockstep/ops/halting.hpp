#pragma once
#include <cstdint>
#include <span>

#include "lockstep/ops/sequence_loss.hpp"
#include "lockstep/samples/puzzle_variant.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Labelled sequences.
///
/// shapes   inputs, labels (B, S); identifiers (B)
/// dtypes   i32
struct SequenceData {
  Tensor inputs, labels, identifiers;
};

/// A stored puzzle and the number of one of its variants. inputs and labels have S tokens.
struct PuzzlePick {
  const std::uint8_t *inputs = nullptr, *labels = nullptr;
  std::uint64_t group = 0, variant = 0;  ///< see PuzzleVariants
  std::int32_t identifier = 0;
};

/// The conversion of puzzles to sequences.
struct PuzzleRule {
  PuzzleVariants variants;
  std::int64_t ignored = -1;  ///< the label token that becomes -1 (not labelled); -1: none
};

/// Replaces halted sequences by new ones: where halted_b is not 0, row b of `to` becomes the variant of picks_b, and
/// steps_b becomes 0. No other picks are read. On a GPU the picks, and the tokens they point to, must be in GPU memory
/// or in pinned host memory.
///
/// shapes   steps, halted, picks (B)
/// dtypes   i32
/// errors   Error if the shapes do not fit
void begin_sequences(Stream&, const SequenceData& to, const Tensor& steps, const Tensor& halted,
                     std::span<const PuzzlePick> picks, const PuzzleRule& rule);

/// When a sequence halts.
struct HaltingRule {
  std::int64_t most_steps = 16;  ///< most segments of one sequence
  bool q_continue = true;        ///< false (TRM): halt when q_halt > 0, without a second inner call
  double decay = 1;              ///< factor of the loss from one segment of a sequence to the next
};

/// x_b *= decay^steps_b, the factor computed in f64. Weights a gradient; it precedes halting_loss(), which counts the
/// segment.
///
/// shapes   x (B, ...); steps (B)
/// dtypes   x f32 | f64; steps i32
/// errors   Error if the shapes do not fit
/// source   Qasim, Zhang 2025, arXiv:2511.08653, sec. 3.5 (hierarchical supervision weighting), without the constant Z
void decay_sequences(Stream&, const Tensor& x, const Tensor& steps, double decay);

/// The results of the last segment for each sequence.
struct Segments {
  Tensor q;                               ///< (B, 2): logits of halting and of continuing
  Tensor next_q;                          ///< (B, 2): the logits after one more segment; may be empty
  std::span<const SequenceScore> scores;  ///< (B), of sequence_loss()
  std::span<const std::int32_t> least;    ///< (B): least segments, drawn for exploration
};

/// The contribution of one sequence to the metrics of a training step, or the sum over many sequences.
struct HaltingScore {
  double count = 0;  ///< halted sequences with labels; the next four metrics are sums over these
  double accuracy = 0, exact = 0, q_halt_accuracy = 0, steps = 0;
  double lm_loss = 0, q_halt_loss = 0, q_continue_loss = 0;  ///< over all sequences
  HaltingScore& operator+=(const HaltingScore& other);
};

/// Adaptive computation time: counts one segment of each sequence, decides which sequences halt, and computes the
/// segment's loss.
///
///   steps_b += 1;  last_b = steps_b >= most_steps
///   halted_b = last_b, if most_steps = 1;  else (last_b or q_b0 > q_b1) and steps_b >= least_b  (TRM: 0 for q_b1)
///   target_b = sigmoid(last_b ? next_q_b0 : max(next_q_b0, next_q_b1))
///   loss = sum_b scores_b.loss + (BCE(q_b0, scores_b exact) + BCE(q_b1, target_b)) / 2  (no last term without next_q)
///
/// A decay below 1 multiplies the loss of sequence b and its gradient by decay^(steps_b - 1), but not its `metrics`.
/// The caller does the same for the gradient of scores_b.loss with decay_sequences().
///
/// dq is the gradient of loss with respect to q. Everything is computed in f64 and summed in an order that depends on
/// the shapes alone. On a GPU `least` and `metrics` must be in pinned host memory, and `metrics` is valid once the
/// stream has finished this call.
///
/// shapes   loss (); dq (B, 2); steps, halted, metrics (B)
/// dtypes   q, next_q f32 | f64, equal, with loss and dq of the same; on a GPU also bf16 | f16, with loss and dq in
///          f32. steps, halted i32
/// errors   Error if the shapes do not fit
/// source   Wang et al. 2025, arXiv:2506.21734, and its public code
void halting_loss(Stream&, const Tensor& loss, const Tensor& dq, const Tensor& steps, const Tensor& halted,
                  std::span<HaltingScore> metrics, const Segments& segments, const HaltingRule& rule);

}  // namespace lockstep::ops
