#pragma once
#include <cmath>
#include <cstdint>
#include <span>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// A batch of (user, liked item, other item) as row numbers of one array, with the list of uses of each row, so that
/// one thread sums each row's gradient. The caller owns the memory, which the kernels must be able to read.
struct RankedPairs {
  std::span<const std::int32_t> user, liked, other;  ///< (B)
  std::span<const std::int64_t> use_ptr;             ///< (U + 1)
  std::span<const std::int32_t> use;  ///< (3B), by row, ascending: 3b, 3b + 1, 3b + 2 for sample b's user, liked, other
  constexpr std::int64_t count() const { return std::ssize(user); }
};

/// log(1 + exp(x))
constexpr double softplus(double x) { return (x > 0 ? x : 0) + std::log1p(std::exp(x < 0 ? x : -x)); }

/// Sums over a batch.
struct RankingSums {
  double loss = 0;         ///< of the ranking terms
  double half_square = 0;  ///< half the squared norms of the regularised rows
};

/// Bayesian personalised ranking:  sum_b softplus(r_u . r_j - r_u . r_i) / B + l2 (|r_u|^2 + |r_i|^2 + |r_j|^2) / 2B.
///
/// slope[b] = -sigmoid(r_u . r_j - r_u . r_i) is stored for the gradient. drows, unless empty, is stored:
///
///   dr_u = slope (r_i - r_j) / B + l2 r_u / B
///   dr_i = slope r_u / B + l2 r_i / B,   dr_j = -slope r_u / B + l2 r_j / B
///
/// A row's gradient is summed in the order of the batch, for any number of threads. The OpenMP threads share the work.
/// Rows without uses are padding: their drows are not stored.
///
/// `sums`, and `copy` unless null, receive the sums as from sum_rankings().
///
/// On a CPU, drows may hold only some of the rows, from row `first` on.
///
/// shapes   rows, drows (U, D); slope (B)
/// dtypes   f32 | f64, all equal; sums over D and B in f64
/// errors   Error naming the shapes if they do not fit
/// source   Rendle et al. 2009, "BPR: Bayesian Personalized Ranking from Implicit Feedback", eq. 4-5
void bpr(Stream&, Arena& scratch, const RankedPairs& batch, const Tensor& rows, double l2, const Tensor& slope,
         const Tensor& drows, RankingSums& sums, RankingSums* copy = nullptr, std::int64_t first = 0);

/// Stores the sum of `terms` in `sums` and, unless null, in `copy`. On a GPU all three must be in its memory or in
/// pinned host memory, and the host may read the sums once the stream has finished this call. Each kind of device has
/// one order of additions.
void sum_rankings(Stream&, RankingSums& sums, RankingSums* copy, std::span<const RankingSums> terms);

}  // namespace lockstep::ops
