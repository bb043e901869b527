#pragma once
#include "lockstep/nn/tape.hpp"

namespace lockstep {

/// The weighted mean of each sequence's tokens, see ops/token_pool.hpp; without scores the plain mean. Concatenates the
/// means of `abreast` consecutive sequences.
///
/// shapes   x (N, T, D), scores (N, T, 1) -> (N / abreast, abreast D)
/// errors   Error if N is not a multiple of abreast
Var token_pool(Tape& tape, Var x, Var scores = {}, std::int64_t abreast = 1);

}  // namespace lockstep
