#pragma once
#include "lockstep/ops/halting.hpp"

namespace lockstep::ops::cuda {

/// B sequences of S cells. May be pinned host memory.
struct SequenceRows {
  std::int32_t *inputs, *labels, *identifiers;
};
void begin_sequences(const Stream& stream, std::int64_t sequences, std::int64_t cells, const SequenceRows& to,
                     std::int32_t* steps, const std::int32_t* halted, const SequenceRows& from);

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
