#pragma once
#include "lockstep/ops/sequence_loss.hpp"

namespace lockstep::ops::cuda {

/// logits and dlogits (unless null) are (sequences, positions, n). scores and labels may be pinned host memory.
template <class T>
void sequence_loss(const Stream& stream, std::int64_t sequences, std::int64_t positions, std::int64_t n,
                   real_t<T>* dlogits, SequenceScore* scores, const T* logits, const std::int32_t* labels,
                   TokenLoss loss);

}  // namespace lockstep::ops::cuda
