#pragma once
#include <cstdint>

#include "lockstep/base/permutation.hpp"
#include "lockstep/base/philox.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Pairs of inputs x and targets y in GPU memory, from which kernels take the samples of a step.
struct SampleTable {
  Tensor x, y;     ///< f32 (rows, n_in), (rows, n_out), physical units
  Tensor order;    ///< i32 (n), numbers of the training rows
  Tensor moments;  ///< f32 | f64 (2 (n_in + n_out)): means, then deviations of the inputs; the same of the targets
};

/// The training rows of a shard, as a function of their position. The host writes it into pinned memory, and kernels
/// and the host draw the same rows.
struct RowDraw {
  Permutation order;  ///< of the training rows
  std::uint64_t seed = 0;
  std::int64_t first = 0, count = 0;
  std::int64_t bootstrap = 0;  ///< not 0: the row at a position is drawn with replacement, the same in every epoch
  const std::int32_t* rows = nullptr;  ///< (count) in pinned memory, used in place of the order unless null

  /// The index, among the training rows, of sample i of the shard.
  constexpr std::int64_t operator()(std::int64_t i) const {
    if (rows != nullptr) return rows[i];
    constexpr Site kSite("bootstrap");
    const std::int64_t position = order(first + i);
    if (bootstrap == 0) return position;
    return static_cast<std::int64_t>(Philox(seed, 0, kSite, static_cast<std::uint64_t>(position))
                                         .below(static_cast<std::uint64_t>(order.size()), 0));
  }
};

/// Takes the rows of a shard from a table and normalises them.
///
///   z_ic = (x_rc - mean_c) / deviation_c,   r = order[draw(i)]; t from y
///
/// z and t have the bits of the same calculation on the CPU.
///
/// shapes   z (draw.count, n_in), t (draw.count, n_out)
/// dtypes   z, t as the moments
/// errors   Error naming the shapes if they differ, and without a GPU
void take_samples(Stream&, const Tensor& z, const Tensor& t, const SampleTable& table, const RowDraw* draw);

}  // namespace lockstep::ops
