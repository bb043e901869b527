#pragma once
#include <cstdint>

#include "lockstep/ops/activation.hpp"
#include "lockstep/ops/regression_loss.hpp"
#include "ops/common/sample_table_view.hpp"
#include "optim/gpu_update_kernels.hpp"

/// The kernels of DenseStep.
namespace lockstep::optim_kernels {

inline constexpr int kMostDenseLayers = 9;
/// Samples whose values a block holds at a time.
inline constexpr int kFewRows = 8, kManyRows = 32;
/// Threads of a block; elements of the gradient that it adds at a time; sums of its warps, f64 in shared memory.
inline constexpr int kDenseThreads = 512, kAddedElements = 128, kAddedSums = kDenseThreads / 32 * kAddedElements;
/// Values of each rank after the gradient: weight, flags, loss.
inline constexpr int kRankSums = 3;

/// A linear layer: offsets of its parameters in the flat vectors, and of its arrays in shared memory, in elements. Rows
/// of x and of the weight have one stride, rows of dy another. The padding after a row is 0.
struct DenseLayer {
  std::int64_t in, out, weight, bias;
  std::int64_t stride, dy_stride;
  std::int64_t sm_weight, sm_bias, sm_x;
  std::int64_t sm_dy;  ///< first the slope of phi at the output (last layer: the target), then the gradient
};

/// The operands of both kernels.
template <class T>
struct DenseOperands {
  DenseLayer layer[kMostDenseLayers];
  std::int64_t layers;
  std::int64_t activation, loss;  ///< ops::Activation, ops::Regression. As wide as pointers, see ColumnSums
  T loss_scale;
  ops::cuda::TableView<T> table;
  const ops::RowDraw* draw;
  std::int64_t count, part_rows, parts;  ///< samples, samples of a part, parts
  std::int64_t sm_size, sm_sum;  ///< shared memory; offset of a part's summed gradient, -1: summed in `partials`
  T* values;
  T* partials;            ///< (parts, size)
  double* loss_partials;  ///< (parts)
  T* sums;                ///< (flat + kRankSums ranks)
  double* squares;        ///< (ceil(size / 32)): sums over 32 elements of the gradient; with one rank
  std::int64_t size;      ///< of the gradient: the end of the last parameter, rounded up to whole packs
  std::int64_t flat, rank, ranks;
  const std::uint64_t* h_record;
  std::uint64_t* record;  ///< GpuStepRecord and RankReport
  std::int64_t record_words;
  std::int64_t updates, norm_size, norm_parts;
  double clip_norm;
  UpdateState *state, *before;  ///< the state, and a copy from before the step
  GpuOutcome* outcome;
  T *m, *v, *average;
  T decay;
};

namespace cuda {

/// The number of blocks with sm_size elements of shared memory that fit on the GPU at once; 0 if none does.
template <class T>
int dense_blocks(const Stream& stream, int rows, std::int64_t sm_size);
/// The whole step; with several ranks, everything before the sum over ranks. `rows` is kFewRows or kManyRows.
template <class T>
void dense_step(const Stream& stream, int blocks, int rows, const DenseOperands<T>& step);
/// With several ranks, everything after the sum over ranks.
template <class T>
void dense_update(const Stream& stream, int blocks, const DenseOperands<T>& step);

}  // namespace cuda
}  // namespace lockstep::optim_kernels
