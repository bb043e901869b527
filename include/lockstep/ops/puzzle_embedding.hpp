#pragma once
#include <cstdint>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// A puzzle as a sequence: P positions with the embedding of its identifier, then its S cells.
///
///   x_bt = scale (e_bt + where_t),   e_b,0..P-1 = puzzles[ids_b], followed by zeros;   e_b,P+s = table[tokens_bs]
///
/// shapes   x (B, P + S, D); table (V, D); puzzles (R, W), W <= P D, or empty with P = 0; where (P + S, D) or empty;
///          tokens (B, S); ids (B). On a GPU tokens and ids must be in device or pinned host memory
/// dtypes   f32 | f64, all equal; on a GPU also bf16 | f16, with dpuzzle, dtable and dwhere in f32; tokens, ids i32
/// errors   Error if the shapes do not fit or an index is out of range. Indices in device memory are not checked
struct PuzzleEmbedding {
  Tensor table, puzzles, where;
  Tensor tokens, ids;
  double scale;
};
void puzzle_embedding_forward(Stream&, const Tensor& x, const PuzzleEmbedding& e);

/// The gradients. dpuzzle_b = scale (the first W elements of dx_b) is stored: one row per sequence, not per identifier.
/// dtable and dwhere are added to. An empty target is not computed.
///
/// shapes   dpuzzle (B, W); dtable, dwhere as the parameters
/// errors   as puzzle_embedding_forward
void puzzle_embedding_backward(Stream&, const Tensor& dpuzzle, const Tensor& dtable, const Tensor& dwhere,
                               const Tensor& dx, const PuzzleEmbedding& e);

}  // namespace lockstep::ops
