#pragma once
#include "lockstep/nn/tape.hpp"

namespace lockstep {

/// A weighted mean of each sequence's tokens, see ops/token_pool.hpp; without scores their mean. The means of `abreast`
/// consecutive sequences stand side by side. shapes  x (N, T, D), scores (N, T, 1) -> (N / abreast, abreast D)
Var token_pool(Tape& tape, Var x, Var scores = {}, std::int64_t abreast = 1);

}  // namespace lockstep
