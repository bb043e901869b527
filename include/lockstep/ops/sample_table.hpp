#pragma once
#include <cstdint>

#include "lockstep/base/permutation.hpp"
#include "lockstep/base/philox.hpp"
#include "lockstep/ops/state_view.hpp"
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
  /// Samples of this step alone, in GPU memory, in place of rows of the table unless null: f32 (count, n_in) and
  /// (count, n_out) in physical units, and their weights (count) in the loss.
  const float *x = nullptr, *y = nullptr, *weights = nullptr;

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
/// shapes   z (draw.count, n_in), t (draw.count, n_out); weights (draw.count), or empty
/// dtypes   z, t, weights as the moments
/// errors   Error naming the shapes if they differ, and without a GPU
void take_samples(Stream&, const Tensor& z, const Tensor& t, const SampleTable& table, const RowDraw* draw,
                  const Tensor& weights = {});

/// Copies columns in GPU memory: to_ji = from_ji. Returns the index of the first element that is not finite, or -1,
/// when the work of the stream is complete.
///
/// scratch  8 bytes on the GPU
/// shapes   to (columns, variables)
/// dtypes   to f32
/// errors   Error without a GPU
template <class S>
std::int64_t copy_columns(const Stream&, const Tensor& to, StateView<const S> from, const Buffer& scratch);

}  // namespace lockstep::ops
