#pragma once
#include <optional>

#include "lockstep/ops/halting.hpp"

namespace lockstep::ops::cuda {

/// The arguments of begin_sequences().
struct Sequences {
  std::int64_t cells;
  std::int32_t *inputs, *labels, *identifiers, *steps;
  const std::int32_t* halted;
  const PuzzlePick* picks;
  PuzzleRule rule;
  /// Begins sequence b: writes every `stride`-th cell from `first` on, and with cell 0 the identifier and step count.
  constexpr void begin(std::int64_t b, std::int64_t first, std::int64_t stride) const {
    const PuzzlePick pick = picks[b];
    const PuzzleVariant variant = rule.variants.draw(pick.group, pick.variant);
    for (std::int64_t i = first; i < cells; i += stride) {
      inputs[b * cells + i] = variant.token(pick.inputs, static_cast<int>(i));
      const std::int32_t label = variant.token(pick.labels, static_cast<int>(i));
      labels[b * cells + i] = label == rule.ignored ? -1 : label;
    }
    if (first != 0) return;
    identifiers[b] = pick.identifier;
    steps[b] = 0;
  }
};
void begin_sequences(const Stream& stream, std::int64_t sequences, const Sequences& all);

/// decay^steps by multiplication, so that every device has the same bits.
constexpr double segment_weight(double decay, std::int64_t steps) {
  double weight = 1;
  for (; steps > 0; --steps) weight *= decay;
  return weight;
}

/// The logits of halting and of continuing.
struct Logits {
  double halt, go_on;
};
/// halting_loss() for one sequence: sets `steps`, `halted`, dq (2) and `metrics`, and returns the loss.
template <class R>
constexpr double count_segment(const HaltingRule& rule, std::int32_t least, const SequenceScore& score, const Logits& q,
                               const std::optional<Logits>& next, std::int32_t& steps, std::int32_t& halted, R* dq,
                               HaltingScore& metrics) {
  const std::int32_t count = ++steps;
  const bool exact = score.exact(), last = count >= rule.most_steps;
  const bool stop = rule.most_steps > 1 ? (last || q.halt > (rule.q_continue ? q.go_on : 0)) && count >= least : last;
  halted = stop;
  const BinaryLoss halt = binary_cross_entropy(q.halt, exact ? 1 : 0);
  BinaryLoss go_on{0, 0};
  if (next)
    go_on = binary_cross_entropy(q.go_on, logistic(last || !(next->halt < next->go_on) ? next->halt : next->go_on));
  const double weight = segment_weight(rule.decay, count - 1);
  dq[0] = static_cast<R>(weight * 0.5 * halt.derivative);
  dq[1] = static_cast<R>(weight * 0.5 * go_on.derivative);
  const bool counts = stop && score.labelled > 0;
  metrics = {.count = counts ? 1.0 : 0.0,
             .accuracy = counts ? static_cast<double>(score.correct) / static_cast<double>(score.labelled) : 0,
             .exact = counts && exact ? 1.0 : 0.0,
             .q_halt_accuracy = counts && (q.halt >= 0) == exact ? 1.0 : 0.0,
             .steps = counts ? static_cast<double>(count) : 0,
             .lm_loss = score.loss,
             .q_halt_loss = halt.loss,
             .q_continue_loss = go_on.loss};
  return weight * (score.loss + 0.5 * (halt.loss + go_on.loss));
}

/// `each` elements per sequence
template <class T>
void decay_sequences(const Stream& stream, std::int64_t elements, std::int64_t each, T* x, const std::int32_t* steps,
                     double decay);

/// next_q may be null. metrics and least may be pinned host memory.
template <class T>
void halting_loss(const Stream& stream, std::int64_t sequences, real_t<T>* loss, real_t<T>* dq, std::int32_t* steps,
                  std::int32_t* halted, HaltingScore* metrics, const T* q, const T* next_q, const SequenceScore* scores,
                  const std::int32_t* least, const HaltingRule& rule);

}  // namespace lockstep::ops::cuda
