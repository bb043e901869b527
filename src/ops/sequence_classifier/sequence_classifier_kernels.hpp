#pragma once
#include <cstddef>
#include <cstdint>

#include "lockstep/base/real.hpp"
#include "lockstep/device/device.hpp"
#include "lockstep/ops/sequence_classifier.hpp"
#include "ops/attention/attention_kernels.hpp"
#include "ops/dropout/dropout_kernels.hpp"

namespace lockstep::ops {

/// What forward keeps, as pointers or as offsets from `kept`. M = B S T rows; arrays of layers lie one after the other.
/// Only `pooled` exists if no backward follows; the other pointers are then null.
template <class P>
struct ClassifierKept {
  P pooled;            ///< (B S, D)
  P patches;           ///< (M, P), for bf16 and f16
  P embedded;          ///< (M, D), before the first layer norm
  P x;                 ///< (layers + 1, M, D): the input of each layer, and the last one's output
  P inner;             ///< (layers, M, D): after the attention's layer norm
  P qkv;               ///< (layers, M, 3 A)
  P attended;          ///< (layers, M, A)
  P lse;               ///< (layers, M, heads)
  P middle;            ///< (layers, M, D): after the attention's residual
  P other;             ///< (layers, M, D): pre-norm: the normalised `middle`; post-norm: the sum before the layer norm
  P gelu, slope;       ///< (layers, M, MLP): output and derivative of GELU, with dropout
  P tokens;            ///< (M, D): after the last layer norm
  P tanh, tanh_slope;  ///< (M, scores)
  P token_weights;     ///< (M)
  P hidden[kMostClassifierHidden];        ///< (B, width): before the layer norm
  P hidden_gelu[kMostClassifierHidden];   ///< (B, width): with dropout
  P hidden_slope[kMostClassifierHidden];  ///< (B, width)
};

/// What backward computes on the way; pointers or offsets. Gradients of rows are operands of the products for weights.
template <class P>
struct ClassifierScratch {
  P dpooled;                         ///< (B S, D)
  P dqkv, dattention, dup, dmlp;     ///< (layers, M, 3 A | D | MLP | D)
  P dembedded;                       ///< (M, D)
  P dtanh;                           ///< (M, scores)
  P dscore;                          ///< (M)
  P dhidden[kMostClassifierHidden];  ///< (B, width)
  P dnorm[kMostClassifierHidden];    ///< (2, B, width): what each window adds to the gradients of gamma and beta
  P dlast;                           ///< (B, classes)
  P norms;                           ///< (blocks, block_sums()): what each block adds to other vectors
  P weights;                         ///< (splits, flat_size): sums over kSplitRows rows of each matrix and bias
};

/// The vectors whose gradients each block of the encoder's backward sums over its rows, one after the other: gamma and
/// beta of the stem, of the output, and of the attention's and the MLP's layer norm of each layer; then the positions.
inline std::int64_t block_sums(const ClassifierSizes& s) { return (4 + 4 * s.layers + s.time) * s.dim; }

/// Rows that one block of the products for weights sums.
inline constexpr std::int64_t kSplitRows = 256;

namespace cuda {

/// The operands of the kernels. All pointers are device pointers, those of dropout also pinned.
template <class T>
struct ClassifierCall {
  using R = real_t<T>;
  ClassifierSizes sizes;
  ClassifierPlaces places;
  ClassifierDropout dropout;
  ClassifierKept<R*> kept;
  ClassifierScratch<R*> scratch;
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
/// From these the gradients of the parameters.
template <class T>
void sequence_classifier_gradients(const Stream& stream, const ClassifierCall<T>& call, std::int64_t blocks);

}  // namespace cuda
}  // namespace lockstep::ops
