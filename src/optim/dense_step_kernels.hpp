#pragma once
#include <cstdint>

#include "lockstep/ops/activation.hpp"
#include "lockstep/ops/regression_loss.hpp"
#include "ops/common/sample_table_kernels.hpp"
#include "optim/gpu_update_kernels.hpp"

/// The kernels of DenseStep.
namespace lockstep::optim_kernels {

inline constexpr int kMostDenseLayers = 9;
/// Samples whose values a block holds at a time.
inline constexpr int kFewRows = 8, kManyRows = 16;
/// Numbers of each rank behind the gradient: weight, flags, loss.
inline constexpr int kRankSums = 3;

/// A linear layer: places of its parameters in the flat vectors, and of its arrays in shared memory, in elements. Rows of
/// x and of the weight have the same stride, rows of dy another. Elements behind a row are 0.
struct DenseLayer {
  std::int64_t in, out, weight, bias;
  std::int64_t stride, dy_stride;
  std::int64_t sm_weight, sm_bias, sm_x;
  std::int64_t
      sm_dy;  ///< the slope of phi at the layer's output, then the gradient; of the last layer the target first
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
  std::int64_t count, part_rows, parts;  ///< samples, those of a part, and parts
  std::int64_t sm_size, sm_sum;  ///< of shared memory; where the gradient of a part is added up, -1: in `partials`
  T* values;
  T* partials;            ///< (parts, size)
  double* loss_partials;  ///< (parts)
  T* sums;                ///< (flat + kRankSums ranks)
  double* squares;        ///< (ceil(size / 32)), of as many elements of the gradient each; with one rank
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

/// Whether a block can run with so many elements of shared memory, and the most blocks at a time.
template <class T>
int dense_blocks(const Stream& stream, int rows, std::int64_t sm_size);
/// The whole step, or with several ranks all before the sum over ranks. `rows` is kFewRows or kManyRows.
template <class T>
void dense_step(const Stream& stream, int blocks, int rows, const DenseOperands<T>& step);
/// With several ranks, all behind the sum over ranks.
template <class T>
void dense_update(const Stream& stream, int blocks, const DenseOperands<T>& step);

}  // namespace cuda
}  // namespace lockstep::optim_kernels
