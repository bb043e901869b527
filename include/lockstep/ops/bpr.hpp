#pragma once
#include <cstdint>
#include <span>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// A batch of (user, liked item, other item), as row numbers of one array, and where each row is used, so that its
/// gradient can be summed in one place. The memory is the caller's, where the kernels can read it.
struct RankedPairs {
  std::span<const std::int32_t> user, liked, other;  ///< (B)
  std::span<const std::int64_t> use_ptr;             ///< (U + 1)
  std::span<const std::int32_t> use;  ///< (3B): 3b, 3b + 1, 3b + 2 for sample b's user, liked, other; by row, ascending
  constexpr std::int64_t count() const { return static_cast<std::int64_t>(user.size()); }
};

/// Sums over a batch.
struct RankingSums {
  double loss = 0;         ///< of the ranking terms
  double half_square = 0;  ///< of half the squared norms of what is regularised
};

/// Bayesian personalised ranking:  sum_b softplus(r_u . r_j - r_u . r_i) / B + l2 (|r_u|^2 + |r_i|^2 + |r_j|^2) / 2B.
///
/// slope[b] = -sigmoid(r_u . r_j - r_u . r_i) is kept for the gradient; drows, unless empty, is stored:
///
///   dr_u = slope (r_i - r_j) / B + l2 r_u / B,   dr_i = slope r_u / B + l2 r_i / B,   dr_j = -slope r_u / B + l2 r_j / B
///
/// A row's gradient is summed in the order of the batch, whatever the threads. Shared among OpenMP's threads. `sums` is
/// stored; for a GPU it lies in pinned memory, and holds them when the stream has come past.
///
/// shapes   rows, drows (U, D); slope (B)
/// dtypes   f32 | f64, all equal; sums over D and B in f64
/// source   Rendle et al. 2009, "BPR: Bayesian Personalized Ranking from Implicit Feedback", eq. 4-5
void bpr(Stream&, Arena& scratch, const RankedPairs& batch, const Tensor& rows, double l2, const Tensor& slope,
         const Tensor& drows, RankingSums& sums);

}  // namespace lockstep::ops
