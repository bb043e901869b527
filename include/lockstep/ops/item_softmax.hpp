#pragma once
#include <cstdint>
#include <span>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// The items with which the next item of each token is compared.
///
/// shapes   rows (K, C); ids (K); bias (K)
/// dtypes   rows as the features; ids i32; bias real_dtype() of the features. All on the device of the features
struct SoftmaxCandidates {
  Tensor rows;
  Tensor ids;              ///< each candidate's row in the table; empty: first + j + 1
  Tensor bias;             ///< added to the scores; empty: 0
  std::int64_t first = 0;  ///< index of the first of `rows` among all candidates
  /// A power of two. On the CPU, sums over the candidates are computed within this many contiguous parts (part_begin())
  /// and then over the parts: sums of exponentials in order, the gradient of f in a binary tree. So processes that
  /// divide the parts among them compute the same bits (softmax_part() and the functions after it).
  std::int64_t parts = 1;

  /// The first candidate of part p = 0..parts.
  std::int64_t part_begin(std::int64_t p) const { return rows.rows() * p / parts; }
  /// Part p alone.
  SoftmaxCandidates part(std::int64_t p) const;
};

/// Cross-entropy of a softmax over the next item and the candidates:
///
///   s_m = f_m . E_pos_m,   z_mj = f_m . W_j + b_j,   loss = sum over m with pos_m != 0 of
///   log(exp(s_m) + sum over j with id_j != pos_m of exp(z_mj)) - s_m
///
/// With all rows 1..R-1 of E as candidates it is the exact cross-entropy over a catalogue. With drawn candidates and
/// b_j = -log(K q_j), where q_j is the probability of a draw, the sum over candidates is an unbiased estimate of that
/// over all items but the next (logQ correction).
///
/// The scores are computed in tiles of tokens and candidates in `scratch` (softmax_scratch()); the whole matrix is
/// never stored. The forward pass keeps a running maximum and sum of each token; the backward pass recomputes the
/// scores. `state` passes values from the forward to the backward pass.
///
/// shapes   loss (); state (3, M); f (M, C); table E (R, C); pos (M), in host memory, pinned for a GPU
/// dtypes   f, table f32 | f64, on a GPU also bf16 | f16; loss, state, dtable f32 for halves, else the same; drows as
///          dtable or as rows; the sum over tokens is computed in f64
/// errors   Error naming the shapes if they do not fit or M or K is 0, or an item that is not in 0..R-1; parts that are
///          no power of two
/// source   online sum: Milakov, Gimelshein 2018, arXiv:1805.02867; logQ: Bengio, Senecal 2008, without a correction of
///          the next item, which is always among the candidates (arXiv:2507.09331)
void item_softmax_forward(Stream&, const Tensor& loss, const Tensor& state, const Tensor& scratch, const Tensor& f,
                          const Tensor& table, const SoftmaxCandidates& candidates, std::span<const std::int32_t> pos);
/// The gradients of f, the candidates' rows and the table; the latter only through the next items. dtable (R, C) is
/// always added to, on the CPU in rows `places` (M) unless it is empty. Any may be empty; drows and dtable may overlap.
void item_softmax_backward(Stream&, Target df, Target drows, const Tensor& dtable, const Tensor& dloss,
                           const Tensor& state, const Tensor& scratch, const Tensor& f, const Tensor& table,
                           const SoftmaxCandidates& candidates, std::span<const std::int32_t> pos,
                           std::span<const std::int32_t> places = {});

/// The scratch memory that both passes need, in elements of real_dtype() of the features.
///
/// halves   whether the features are bf16 or f16
std::int64_t softmax_scratch(Device device, bool halves, std::int64_t tokens, std::int64_t candidates,
                             std::int64_t columns, std::int64_t parts = 1);

// The steps of item_softmax on the CPU, for processes that divide the candidates among them. Tokens without a next item
// (pos 0) are left out. `scratch` has softmax_scratch() elements for the candidates of the call.

/// The largest score of each token over `c` and its next item, and the sum of exp(score - largest) over `c` without the
/// next item.
///
/// shapes   largest, sum, next (M); next: the scores s of the next items
void softmax_part(Stream&, const Tensor& largest, const Tensor& sum, const Tensor& next, const Tensor& scratch,
                  const Tensor& f, const SoftmaxCandidates& c, std::span<const std::int32_t> pos);
/// Initialises the combined sums with the next items alone.
void softmax_begin(const Tensor& largest, const Tensor& sum, const Tensor& next);
/// Adds a part's sums to the combined sums. Call it for the parts in ascending order.
void softmax_add(const Tensor& largest, const Tensor& sum, const Tensor& part_largest, const Tensor& part_sum,
                 std::span<const std::int32_t> pos);
/// Replaces `largest` by the logarithm of the sum of exponentials, and `next` by the derivative of the loss with
/// respect to the next item's score. Returns the loss.
double softmax_end(const Tensor& largest, const Tensor& sum, const Tensor& next, std::span<const std::int32_t> pos);
/// The gradients through the scores of `c`. lse (M) is the first result of softmax_end().
void softmax_part_backward(Stream&, Target df, Target drows, const Tensor& dloss, const Tensor& lse,
                           const Tensor& scratch, const Tensor& f, const SoftmaxCandidates& c,
                           std::span<const std::int32_t> pos);
/// Candidates of a tile on the CPU. A part computed in several calls of this many candidates each has the same bits.
inline constexpr std::int64_t kSoftmaxTile = 256;

}  // namespace lockstep::ops
