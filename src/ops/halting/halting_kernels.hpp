#pragma once
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
