#pragma once
#include <cstddef>
#include <cstdint>

#include "lockstep/base/real.hpp"
#include "lockstep/device/device.hpp"
#include "lockstep/ops/sequence_classifier.hpp"
#include "ops/attention/attention_kernels.hpp"
#include "ops/dropout/dropout_kernels.hpp"

namespace lockstep::ops {

/// The values that forward stores for backward, in M = B S T rows. Only `pooled` exists if no backward follows; the
/// other pointers are then null.
template <class R>
struct ClassifierKept {
  R* pooled;        ///< (B S, D)
  R* patches;       ///< (M, P), for bf16 and f16
  R* embedded;      ///< (M, D), before the first layer norm
  R* x;             ///< (layers + 1, M, D): the input of each layer, and the last one's output
  R* inner;         ///< (layers, M, D): after the attention's layer norm
  R* qkv;           ///< (layers, M, 3 A)
  R* attended;      ///< (layers, M, A)
  R* middle;        ///< (layers, M, D): after the attention's residual
  R* other;         ///< (layers, M, D): pre-norm: the normalised `middle`; post-norm: the sum before the layer norm
  R *gelu, *slope;  ///< (layers, M, MLP): output and derivative of GELU, with dropout
  R* tokens;        ///< (M, D): after the last layer norm
  R *tanh, *tanh_slope;                    ///< (M, scores)
  R* token_weights;                        ///< (M)
  R* hidden[kMostClassifierHidden];        ///< (B, width): before the layer norm
  R* hidden_gelu[kMostClassifierHidden];   ///< (B, width): with dropout
  R* hidden_slope[kMostClassifierHidden];  ///< (B, width)
};

/// The intermediate results of backward. Gradients of rows are operands of the products for weights.
template <class R>
struct ClassifierScratch {
  R* dpooled;                         ///< (B S, D)
  R *dqkv, *dattention, *dup, *dmlp;  ///< (layers, M, 3 A | D | MLP | D)
  R* dembedded;                       ///< (M, D)
  R* dtanh;                           ///< (M, scores)
  R* dscore;                          ///< (M)
  R* dhidden[kMostClassifierHidden];  ///< (B, width)
  R* dnorm[kMostClassifierHidden];    ///< (2, B, width): each window's terms of the gradients of gamma and beta
  R* dlast;                           ///< (B, classes)
  R* norms;                           ///< (blocks, block_sums()): each block's sums for other vectors
  R* weights;                         ///< (splits, flat_size): sums over kSplitRows rows of each matrix and bias
};

/// The vectors whose gradients each block of the encoder's backward sums over its rows, one after the other: gamma and
/// beta of the stem, of the output, and of the attention's and the MLP's layer norm of each layer; then the positions.
inline std::int64_t block_sums(const ClassifierSizes& s) { return (4 + 4 * s.layers + s.time) * s.dim; }

/// Rows that one block of the products for weights sums.
inline constexpr std::int64_t kSplitRows = 128;

namespace cuda {

/// The operands of the kernels. All pointers are device pointers, those of dropout also pinned.
template <class T>
struct ClassifierCall {
  using R = real_t<T>;
  ClassifierSizes sizes;
  ClassifierPlaces places;
  ClassifierDropout dropout;
  ClassifierKept<R> kept;
  ClassifierScratch<R> scratch;
  const T* patches;
  const T* weights;
  T* logits;         ///< forward
  const T* dlogits;  ///< backward
  R* gradient;       ///< backward: flat
  std::int64_t flat_size;
};

/// Sequences in a block of the backward pass; 0: not even one fits.
std::int64_t sequences_per_block(const Stream& stream, std::size_t stored_bytes, std::size_t real_bytes,
                                 const ClassifierSizes& sizes);

template <class T>
void sequence_classifier_forward(const Stream& stream, const ClassifierCall<T>& call);
/// The gradients of rows, and the partial sums `norms` and `dnorm`.
template <class T>
void sequence_classifier_backward(const Stream& stream, const ClassifierCall<T>& call);
/// Computes the gradients of the parameters from them.
template <class T>
void sequence_classifier_gradients(const Stream& stream, const ClassifierCall<T>& call, std::int64_t blocks);

}  // namespace cuda
}  // namespace lockstep::ops
