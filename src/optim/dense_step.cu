#include "lockstep/optim/dense_step.hpp"

#include <cooperative_groups.h>

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/device/cuda_copy_async.hpp"
#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "lockstep/ops/gemm.hpp"
#include "ops/common/activation_cuda.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/common/regression.hpp"
#include "ops/common/sample_table_view.hpp"
#include "ops/common/tile_lane_cuda.hpp"
#include "optim/cuda_kernels.hpp"
#include "optim/gpu_update_cuda.hpp"
#include "optim/square_sum_cuda.hpp"
#include "optim/sweep_cuda.hpp"

// Compiled with -fmad=false, for an update with the bits of the CPU. The products call fma().
namespace lockstep::optim_kernels::cuda {

namespace {

constexpr int kMostDenseLayers = 9;
/// Samples whose values a block holds at a time.
constexpr int kFewRows = 8, kManyRows = 32;
/// Threads of a block; elements of the gradient that it adds at a time; sums of its warps, f64 in shared memory.
constexpr int kThreads = 512, kAddedElements = 128, kAddedSums = kThreads / 32 * kAddedElements;
/// Values of each rank after the gradient: weight, flags, loss.
constexpr int kRankSums = 3;

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

using gpu::kTileColumns;
using gpu::kTileRows;
using gpu::kWarp;
constexpr int kWarps = kThreads / kWarp;

/// Four elements of shared memory: one load in f32, two in f64.
template <class T>
struct alignas(16) Quad {
  T at[4];
};
template <class T>
__device__ Quad<T> quad(const T* from) {
  return *reinterpret_cast<const Quad<T>*>(from);
}
template <class T>
__device__ void put_quad(T* to, const Quad<T>& values) {
  *reinterpret_cast<Quad<T>*>(to) = values;
}

/// Calls f(row, column) for the lane's element of each tile of a grid of rows x columns elements, a warp per tile; rows
/// is a multiple of kTileRows.
template <class F>
__device__ void each_in_tiles(int rows, int columns, const F& f) {
  const gpu::TileLane at(static_cast<int>(threadIdx.x) % kWarp);
  const int across = gpu::ceil_div(columns, kTileColumns), tiles = rows / kTileRows * across;
#pragma unroll 1
  for (int tile = static_cast<int>(threadIdx.x) / kWarp; tile < tiles; tile += kWarps) {
    const int down = tile / across, column = (tile - down * across) * kTileColumns + at.column;
    if (column < columns) f(down * kTileRows + at.row, column);
  }
}

/// Starts to load all weights and clears the rest of the shared memory. The padding after rows must be 0.
template <class T>
__device__ void load_weights(const DenseOperands<T>& s, T* sm) {
  for (std::int64_t i = threadIdx.x; i < s.sm_size / 4; i += kThreads) put_quad(sm + 4 * i, {});
  __syncthreads();
  for (int k = 0; k < s.layers; ++k) {
    const DenseLayer& l = s.layer[k];
    const int in = static_cast<int>(l.in), weights = static_cast<int>(l.in * l.out);
    const T* from = s.values + l.weight;
    T* to = sm + l.sm_weight;
    if (in % 4 == 0) {
      for (int i = 4 * static_cast<int>(threadIdx.x); i < weights; i += 4 * kThreads)
        gpu::copy_async<4 * sizeof(T)>(to + i / in * l.stride + i % in, from + i);
    } else {
      for (int i = static_cast<int>(threadIdx.x); i < weights; i += kThreads)
        gpu::copy_async<sizeof(T)>(to + i / in * l.stride + i % in, from + i);
    }
    for (std::int64_t o = threadIdx.x; o < l.out; o += kThreads)
      gpu::copy_async<sizeof(T)>(sm + l.sm_bias + o, s.values + l.bias + o);
  }
}

/// Loads `rows` samples from the table: inputs to the first layer, targets to the memory of the last layer's gradient.
/// The remaining rows become 0.
template <class T, int kRows>
__device__ void load_rows(const DenseOperands<T>& s, const ops::RowDraw& draw, std::int64_t first, int rows, T* sm) {
  __shared__ std::int64_t sm_rows[kRows];
  if (threadIdx.x < kRows)
    sm_rows[threadIdx.x] =
        static_cast<int>(threadIdx.x) < rows ? row_of(s.table, draw, first + static_cast<int>(threadIdx.x)) : -1;
  __syncthreads();
  const DenseLayer &input = s.layer[0], &output = s.layer[s.layers - 1];
  const int columns = static_cast<int>(s.table.n_in + s.table.n_out), inputs = static_cast<int>(s.table.n_in);
  for (int i = static_cast<int>(threadIdx.x); i < kRows * columns; i += kThreads) {
    const int row = i / columns, c = i % columns;
    const T value = sm_rows[row] < 0 ? T{0} : ops::cuda::normalised(s.table, draw, sm_rows[row], c);
    if (c < inputs)
      sm[input.sm_x + row * input.stride + c] = value;
    else
      sm[output.sm_dy + row * output.dy_stride + c - inputs] = value;
  }
  gpu::wait_for_copies();  // of the weights, the first time
  __syncthreads();
}

/// One layer for all rows: a thread computes a square of outputs: with few rows one, otherwise two outputs of two rows.
/// The odd number of packs in a stride puts the packs of weights into different banks. Returns this thread's share of
/// the loss. factors: of the rows in the loss, or null.
template <class T, int kRows>
__device__ double forward(const DenseOperands<T>& s, int k, int rows, const float* factors, T* sm) {
  constexpr int kEach = kRows == kFewRows ? 1 : 2;
  const DenseLayer& l = s.layer[k];
  const bool last = k + 1 == s.layers;
  const int out = static_cast<int>(l.out), in = static_cast<int>(l.in), stride = static_cast<int>(l.stride),
            apart = gpu::ceil_div(out, kEach);  // of a thread's outputs
  double loss = 0;
  each_in_tiles(kRows / kEach, apart, [&](int group, int o) {
    const T *w = sm + l.sm_weight, *x = sm + l.sm_x + group * kEach * stride;
    const int own[2] = {o * stride, (o + apart < out ? o + apart : o) * stride};
    T sum[kEach][kEach] = {};
#pragma unroll 4
    for (int i = 0; i < in; i += 4) {
      Quad<T> weight[kEach];
#pragma unroll
      for (int q = 0; q < kEach; ++q) weight[q] = quad(w + own[q] + i);
#pragma unroll
      for (int r = 0; r < kEach; ++r) {
        const Quad<T> value = quad(x + r * stride + i);
#pragma unroll
        for (int c = 0; c < 4; ++c)
#pragma unroll
          for (int q = 0; q < kEach; ++q) sum[r][q] = std::fma(value.at[c], weight[q].at[c], sum[r][q]);
      }
    }
#pragma unroll 1  // one copy of the activations
    for (int e = 0; e < kEach * kEach; ++e) {
      T a = sum[0][0];
#pragma unroll
      for (int other = 1; other < kEach * kEach; ++other)
        if (e == other) a = sum[other / kEach][other % kEach];
      const int row = group * kEach + e / kEach, column = o + e % kEach * apart;
      if (column >= out) continue;
      a += sm[l.sm_bias + column];
      T* dy = sm + l.sm_dy + row * l.dy_stride + column;
      if (!last) {
        const DenseLayer& next = s.layer[k + 1];
        gpu::activate(static_cast<ops::Activation>(s.activation), a, sm[next.sm_x + row * next.stride + column], *dy);
      } else if (row < rows) {
        const T factor = factors != nullptr ? static_cast<T>(factors[row]) : T{1};
        T slope;
        loss += static_cast<double>(factor * ops::regression(static_cast<ops::Regression>(s.loss), a - *dy, slope));
        *dy = s.loss_scale * (factor * slope);
      } else {
        *dy = 0;
      }
    }
  });
  return loss;
}

/// The gradients of one layer's parameters, stored in `to`, or added if `add`. A thread computes 4 x 2 elements of the
/// weight's gradient.
template <class T, int kRows>
__device__ void parameter_gradients(const DenseLayer& l, bool add, T* to, const T* sm) {
  const int out = static_cast<int>(l.out), in = static_cast<int>(l.in), pairs = (in + 1) / 2;
  const auto put = [add](T* place, T value) { *place = add ? *place + value : value; };
  each_in_tiles(gpu::ceil_div(out, 4 * kTileRows) * kTileRows, pairs, [&](int pack, int pair) {
    const int o = 4 * pack, i = 2 * pair;
    if (o >= out) return;
    T sum[4][2] = {};
    const T *dys = sm + l.sm_dy + o, *xs = sm + l.sm_x + i;
#pragma unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Quad<T> dy = quad(dys + r * l.dy_stride);
      const gpu::Pack<T, 2> x = *reinterpret_cast<const gpu::Pack<T, 2>*>(xs + r * l.stride);
#pragma unroll
      for (int a = 0; a < 4; ++a)
#pragma unroll
        for (int b = 0; b < 2; ++b) sum[a][b] = std::fma(dy.at[a], x.at[b], sum[a][b]);
    }
#pragma unroll
    for (int a = 0; a < 4; ++a) {
      T* place = to + l.weight + std::int64_t{o + a} * in + i;
      if (o + a < out && in % 4 == 0) {
        auto& both = *reinterpret_cast<gpu::Pack<T, 2>*>(place);
        const gpu::Pack<T, 2> before = add ? both : gpu::Pack<T, 2>{};
        both = {before.at[0] + sum[a][0], before.at[1] + sum[a][1]};
      } else if (o + a < out) {
        put(place, sum[a][0]);
        if (i + 1 < in) put(place + 1, sum[a][1]);
      }
    }
  });
  for (int o = static_cast<int>(threadIdx.x); o < out; o += kThreads) {
    T sum = 0;
#pragma unroll 8
    for (int r = 0; r < kRows; ++r) sum += sm[l.sm_dy + r * l.dy_stride + o];
    put(to + l.bias + o, sum);
  }
}

/// dx = dy W, times the slope of the previous layer, which it overwrites. A thread computes four columns of a row.
/// Packs of dy that exceed a row have zeros there; the values after the last row of W are finite.
template <class T, int kRows>
__device__ void input_gradients(const DenseLayer& l, const DenseLayer& before, T* sm) {
  const int packs = (static_cast<int>(l.in) + 3) / 4, stride = static_cast<int>(l.stride);
  each_in_tiles(kRows, packs, [&](int row, int pack) {
    const T *dy = sm + l.sm_dy + row * l.dy_stride, *w = sm + l.sm_weight + 4 * pack;
    T sum[4] = {};
#pragma unroll 2
    for (int o = 0; o < l.out; o += 4) {
      const Quad<T> value = quad(dy + o);
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const Quad<T> weight = quad(w + (o + q) * stride);
#pragma unroll
        for (int c = 0; c < 4; ++c) sum[c] = std::fma(value.at[q], weight.at[c], sum[c]);
      }
    }
    T* to = sm + before.sm_dy + row * before.dy_stride + 4 * pack;
#pragma unroll
    for (int c = 0; c < 4; ++c) to[c] *= sum[c];
  });
}

/// The gradient of one part of the samples, in row `part` of s.partials, and its loss.
template <class T, int kRows>
__device__ void compute_part(const DenseOperands<T>& s, const ops::RowDraw& draw, std::int64_t part, T* sm) {
  const std::int64_t first = part * s.part_rows;
  const std::int64_t end = first + s.part_rows < s.count ? first + s.part_rows : s.count;
  T* const to = s.partials + part * s.size;
  T* const sum = s.sm_sum < 0 ? to : sm + s.sm_sum;
  const int layers = static_cast<int>(s.layers);
  double loss = 0;
  for (std::int64_t at = first; at < end; at += kRows) {
    const int rows = static_cast<int>(end - at < kRows ? end - at : kRows);
    __syncthreads();  // the values of the previous rows have been read
    load_rows<T, kRows>(s, draw, at, rows, sm);
    const float* const factors = draw.weights != nullptr ? draw.weights + at : nullptr;
    for (int k = 0; k < layers; ++k) {
      loss += forward<T, kRows>(s, k, rows, factors, sm);
      __syncthreads();
    }
    for (int k = layers - 1; k >= 0; --k) {
      parameter_gradients<T, kRows>(s.layer[k], at > first, sum, sm);
      if (k == 0) break;
      input_gradients<T, kRows>(s.layer[k], s.layer[k - 1], sm);
      __syncthreads();
    }
  }
  loss = gpu::block_reduce(loss);
  if (threadIdx.x == 0) s.loss_partials[part] = loss;
  if (s.sm_sum < 0) return;
  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < s.size / 4; i += kThreads) put_quad(to + 4 * i, quad(sum + 4 * i));
}

/// Adds the parts of the gradient, in f64. A block has 128 elements at a time, four per lane; each warp adds every
/// kWarps-th part, with several loads in flight, and the sums of the warps are added in order. So the order depends on
/// the number of parts alone. Also writes the sum of squares of every kWarp elements.
template <class T>
__device__ void add_parts(const DenseOperands<T>& s) {
  constexpr int kBlock = kAddedElements;
  static_assert(kBlock == 4 * kWarp && kWarps * kBlock == kAddedSums);
  auto* const sm_sums = reinterpret_cast<double(*)[kBlock]>(sm_bytes);
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  for (std::int64_t base = std::int64_t{blockIdx.x} * kBlock; base < s.size; base += std::int64_t{gridDim.x} * kBlock) {
    double sum[4] = {};
    if (base + 4 * lane < s.size) {
      const T* from = s.partials + base + 4 * lane;
#pragma unroll 8
      for (std::int64_t part = warp; part < s.parts; part += kWarps) {
        const Quad<T> values = quad(from + part * s.size);
#pragma unroll
        for (int c = 0; c < 4; ++c) sum[c] += static_cast<double>(values.at[c]);
      }
    }
    __syncthreads();  // the sums of the previous elements have been read
#pragma unroll
    for (int c = 0; c < 4; ++c) sm_sums[warp][4 * lane + c] = sum[c];
    __syncthreads();
    const int own = static_cast<int>(threadIdx.x);
    if (own >= kBlock) continue;
    double total = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) total += sm_sums[w][own];
    const T value = static_cast<T>(total);
    const double square = gpu::warp_reduce(static_cast<double>(value) * static_cast<double>(value));
    if (base + own >= s.size) continue;
    s.sums[base + own] = value;
    if (lane == 0) s.squares[(base + own) / kWarp] = square;
  }
}

/// Writes this rank's weight, flags and loss, and zeros for the other ranks. Copies the state from before the step: all
/// blocks of dense_update_kernel() read the copy while the first one writes the next state.
template <class T>
__device__ void report(const DenseOperands<T>& s) {
  if (blockIdx.x != 0) return;
  double loss = static_cast<std::int64_t>(threadIdx.x) < s.parts ? s.loss_partials[threadIdx.x] : 0;
  loss = gpu::block_reduce(loss);
  const auto* own = reinterpret_cast<const RankReport*>(reinterpret_cast<const GpuStepRecord*>(s.record) + 1);
  for (std::int64_t i = threadIdx.x; i < kRankSums * s.ranks; i += kThreads) {
    const double mine = i % kRankSums == 0   ? own->weight
                        : i % kRankSums == 1 ? own->flags
                                             : static_cast<double>(s.loss_scale * static_cast<T>(loss));
    s.sums[s.flat + i] = static_cast<T>(i / kRankSums == s.rank ? mine : 0);
  }
  if (threadIdx.x == 0) *s.before = *s.state;
}

/// Clipping, the check for values that are not finite, and the update, given the gradient's sum of squares.
template <class T>
__device__ void end_step(const DenseOperands<T>& s, double squares, const UpdateState& before,
                         const GpuStepRecord& record) {
  __shared__ T sm_scalars[std::tuple_size_v<StepScalars>];
  __shared__ bool sm_moves, sm_fails;
  __shared__ std::int64_t sm_found[kThreads];
  if (threadIdx.x == 0) {
    GpuOutcome all;
    for (std::int64_t rank = 0; rank < s.ranks; ++rank) {
      const T* own = s.sums + s.flat + kRankSums * rank;
      all.weight += static_cast<double>(own[0]);
      all.flags |= static_cast<std::int64_t>(own[1]);
      all.loss += static_cast<double>(own[2]);
    }
    const Decision<T> made = decide<T>(all, before, record, squares, 0, false, s.updates != 0, s.clip_norm);
    for (std::size_t i = 0; i < std::tuple_size_v<StepScalars>; ++i) sm_scalars[i] = made.now.scalars[i];
    sm_moves = made.now.moves;
    sm_fails = made.outcome.failed != 0;
    if (blockIdx.x == 0) {
      *s.state = made.state;
      *s.outcome = made.outcome;
    }
  }
  __syncthreads();
  if (sm_fails && blockIdx.x == 0) note_first_bad(s.flat, s.sums, sm_found, s.outcome);
  if (!sm_moves) return;
  const AdamStep<T> rule = *reinterpret_cast<const AdamStep<T>*>(sm_scalars);
  const Vectors<T> x = {s.values, s.sums, {s.m, s.v}, s.average, s.decay};
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < s.norm_size; i += stride)
    update_element(x, i, i, true, rule);
}

/// A step, see DenseStep. Latency bound: each block loads the weights, computes its parts of the gradient, and waits
/// twice for the grid. Traffic: weights once per block, the partial gradients written and read once, and the
/// optimizer's state.
template <class T, int kRows>
__global__ void __launch_bounds__(kThreads, 1) dense_step_kernel(DenseOperands<T> s) {
  auto* const sm = reinterpret_cast<T*>(sm_bytes);
  constexpr int kDrawWords = sizeof(ops::RowDraw) / sizeof(std::uint64_t);
  __shared__ std::uint64_t sm_draw[kDrawWords];
  const auto grid = cooperative_groups::this_grid();
  const int thread = static_cast<int>(threadIdx.x);
  std::uint64_t word = 0;  // of pinned memory: arrives while the block computes
  const bool has_word = blockIdx.x == 0 && thread < s.record_words;
  if (has_word) word = s.h_record[thread];
  if (static_cast<std::int64_t>(blockIdx.x) < s.parts) {
    if (thread < kDrawWords) sm_draw[thread] = reinterpret_cast<const std::uint64_t*>(s.draw)[thread];
    load_weights(s, sm);
  }
  for (std::int64_t part = blockIdx.x; part < s.parts; part += gridDim.x)
    compute_part<T, kRows>(s, *reinterpret_cast<const ops::RowDraw*>(sm_draw), part, sm);
  if (has_word) s.record[thread] = word;
  grid.sync();
  constexpr int kRecordWords = sizeof(GpuStepRecord) / 8, kEndWords = kRecordWords + sizeof(UpdateState) / 8;
  static_assert(kEndWords <= kThreads && sizeof(GpuStepRecord) % 8 == 0 && sizeof(UpdateState) % 8 == 0);
  __shared__ std::uint64_t sm_end[kEndWords];  // the record and the state, for end_step()
  std::uint64_t end_word = 0;
  if (thread < kEndWords)
    end_word = thread < kRecordWords ? s.record[thread]
                                     : reinterpret_cast<const std::uint64_t*>(s.state)[thread - kRecordWords];
  add_parts(s);
  report(s);
  if (s.ranks > 1) return;
  if (thread < kEndWords) sm_end[thread] = end_word;
  grid.sync();
  double squares = 0;
  for (std::int64_t i = thread; i < gpu::ceil_div(s.size, kWarp); i += kThreads) squares += s.squares[i];
  end_step(s, gpu::block_reduce(squares), *reinterpret_cast<const UpdateState*>(sm_end + kRecordWords),
           *reinterpret_cast<const GpuStepRecord*>(sm_end));
}

/// Every block computes the whole norm of the sums over ranks, because a grid barrier would take longer.
template <class T>
__global__ void __launch_bounds__(kSquareThreads) dense_update_kernel(gpu::Earlier earlier, DenseOperands<T> s) {
  earlier.wait();
  double squares = 0;
  for (std::int64_t part = 0; part < s.norm_parts; ++part)
    squares += square_sum(s.norm_size, s.sums, part, s.norm_parts);
  end_step(s, squares, *s.before, *reinterpret_cast<const GpuStepRecord*>(s.record));
}

template <class T>
using DenseKernel = void (*)(DenseOperands<T>);
template <class T>
DenseKernel<T> kernel_of(int rows) {
  return rows == kFewRows ? dense_step_kernel<T, kFewRows> : dense_step_kernel<T, kManyRows>;
}

}  // namespace
}  // namespace lockstep::optim_kernels::cuda

namespace lockstep {

namespace {

namespace kernels = optim_kernels::cuda;
using kernels::DenseLayer;
using kernels::DenseOperands;
using kernels::kFewRows;
using kernels::kManyRows;
using kernels::kRankSums;

std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

/// The rows of a block at a time, and the layout of its shared memory.
template <class T>
struct Layout {
  int rows = 0;
  int blocks = 0;  ///< that fit on the GPU at once
  DenseOperands<T> operands;
};

template <class T>
class DenseStepOf final : public DenseStep {
 public:
  DenseStepOf(DenseNetwork network, ParamStore& params, const GpuUpdate::Operands& end, int rank, int ranks)
      : network_(std::move(network)),
        params_(params),
        end_(end),
        few_(layout(kFewRows)),
        many_(layout(kManyRows)),
        sums_(params.dtype(), {params.values().size() + kRankSums * ranks}, params.device(), MemoryUse::gradients),
        loss_partials_(params.device(), kMostParts * sizeof(double)),
        before_(params.device(), sizeof(optim_kernels::UpdateState)) {
    if (!fits()) return;
    const std::int64_t size = few_.operands.size;
    partials_ = OwnedTensor(params.dtype(), {kMostParts * size}, params.device(), MemoryUse::workspace);
    squares_ = Buffer(params.device(), static_cast<std::size_t>((size + 31) / 32) * sizeof(double));
    std::array<Tensor, 2> moments;
    if (end_.optimizer != nullptr) moments = end_.optimizer->adam_moments();
    for (Layout<T>* layout : {&few_, &many_}) {
      DenseOperands<T>& s = layout->operands;
      s.values = params.values().data<T>();
      s.partials = partials_.view().template data<T>();
      s.loss_partials = reinterpret_cast<double*>(loss_partials_.data());
      s.sums = sums_.view().template data<T>();
      s.squares = reinterpret_cast<double*>(squares_.data());
      s.flat = params.values().size();
      s.rank = rank;
      s.ranks = ranks;
      s.record_words = static_cast<std::int64_t>((sizeof(GpuStepRecord) + RankReport::size_bytes(1)) / 8);
      require(s.record_words <= kernels::kThreads, "a step record of ", s.record_words,
              " words: a thread of a block copies one");
      s.state = reinterpret_cast<optim_kernels::UpdateState*>(end_.state);
      s.before = reinterpret_cast<optim_kernels::UpdateState*>(before_.data());
      s.updates = end_.optimizer != nullptr ? 1 : 0;
      s.clip_norm = end_.clip_norm;
      if (end_.optimizer == nullptr) continue;
      s.norm_size = end_.norm_ranges.front().end;
      s.norm_parts = kHasCuda ? kernels::partial_sums(s.norm_size) : 0;
      s.m = moments[0].data<T>();
      s.v = moments[1].data<T>();
    }
  }

  bool fits() const { return few_.blocks > 0; }
  std::size_t shared_bytes() const { return static_cast<std::size_t>(few_.operands.sm_size) * sizeof(T); }

  void compute(const Stream& stream, const Step& step) override {
    // Few samples are spread over many blocks; with many, a block takes more rows at a time.
    const bool spread = step.count <= kMostParts * kFewRows || many_.blocks == 0;
    Layout<T> now = spread ? few_ : many_;
    DenseOperands<T>& s = now.operands;
    s.part_rows = std::max<std::int64_t>(kFewRows, round_up((step.count + kMostParts - 1) / kMostParts, now.rows));
    s.parts = (step.count + s.part_rows - 1) / s.part_rows;
    if (s.part_rows == now.rows && s.sm_sum >= 0) s.sm_size = std::exchange(s.sm_sum, -1);  // nothing to add up
    set(s, step);
    double products = 0;
    for (int k = 0; k < s.layers; ++k) products += static_cast<double>(s.layer[k].in * s.layer[k].out);
    ops::on_gpu(stream, [&](const auto& of_gpu) {
      gpu::launch(of_gpu,
                  {.grid = blocks(now),
                   .block = kernels::kThreads,
                   .shared_bytes = static_cast<std::size_t>(s.sm_size) * sizeof(T),
                   .flops = 6 * products * static_cast<double>(s.count),
                   .cooperative = true},
                  kernels::kernel_of<T>(now.rows), s);
    });
  }

  void update(const Stream& stream, const Step& step) override {
    Layout<T> now = few_;
    set(now.operands, step);
    ops::on_gpu(stream, [&](const auto& of_gpu) {
      gpu::launch(of_gpu, {.grid = blocks(now), .block = kernels::kSquareThreads}, kernels::dense_update_kernel<T>,
                  now.operands);
    });
  }

  const Tensor& sums() const override { return sums_.view(); }

 private:
  static void set(DenseOperands<T>& s, const Step& step) {
    s.draw = step.draw;
    s.count = step.count;
    s.h_record = reinterpret_cast<const std::uint64_t*>(step.h_record);
    s.record = reinterpret_cast<std::uint64_t*>(step.record);
    s.outcome = step.outcome;
    s.average = step.average != nullptr ? step.average->flat().template data<T>() : nullptr;
    s.decay = step.average != nullptr ? static_cast<T>(step.average->decay()) : T{0};
  }

  /// At least one block for each part of the samples; more if each then adds kAddedElements elements of the gradient.
  static int blocks(const Layout<T>& now) {
    constexpr std::int64_t kElements = kernels::kAddedElements;
    const std::int64_t wanted = std::max(now.operands.parts, (now.operands.size + kElements - 1) / kElements);
    return static_cast<int>(std::min<std::int64_t>(wanted, now.blocks));
  }

  /// The layout for `rows` samples at a time; `blocks` is 0 if it does not fit. The gradient of a part is summed in
  /// shared memory if that fits, too.
  Layout<T> layout(int rows) const {
    Layout<T> to{.rows = rows, .blocks = 0, .operands = {}};
    DenseOperands<T>& s = to.operands;
    s.table = ops::cuda::TableView<T>(network_.table);
    s.layers = std::ssize(network_.weights);
    s.activation = static_cast<std::int64_t>(network_.activation);
    s.loss = static_cast<std::int64_t>(network_.loss);
    s.loss_scale = static_cast<T>(network_.loss_scale);
    std::int64_t at = 0;  // of the shared memory, which later holds the sums of warps
    const auto take = [&](std::int64_t elements) { return std::exchange(at, at + round_up(elements, 4)); };
    for (std::int64_t k = 0; k < s.layers; ++k) {
      const Param &w = *network_.weights[k], &b = *network_.biases[k];
      DenseLayer& l = s.layer[k];
      l.in = w.shape[1];
      l.out = w.shape[0];
      l.weight = w.offset;
      l.bias = b.offset;
      l.stride = round_up(l.in, 4) / 4 % 2 == 0 ? round_up(l.in, 4) + 4 : round_up(l.in, 4);
      l.dy_stride = round_up(l.out, 4);
      l.sm_weight = take(l.out * l.stride);
      l.sm_bias = take(l.out);
      l.sm_x = take(rows * l.stride);
      l.sm_dy = take(rows * l.dy_stride);
      s.size = std::max(s.size, round_up(b.offset + l.out, 4));
    }
    at = std::max<std::int64_t>(at, kernels::kAddedSums * sizeof(double) / sizeof(T));
    s.sm_size = at;
    s.sm_sum = -1;
    ops::on_gpu(Stream(params_.device()), [&](const auto& stream) {
      const auto resident = [&](std::int64_t size) {
        return gpu::resident_blocks(stream, reinterpret_cast<const void*>(kernels::kernel_of<T>(rows)),
                                    kernels::kThreads, static_cast<std::size_t>(size) * sizeof(T));
      };
      to.blocks = resident(at);
      if (const int both = resident(at + s.size); both > 0) {
        to.blocks = both;
        s.sm_sum = take(s.size);
        s.sm_size = at;
      }
    });
    return to;
  }

  DenseNetwork network_;
  ParamStore& params_;
  GpuUpdate::Operands end_;
  Layout<T> few_, many_;
  OwnedTensor sums_, partials_;  // the elements of gaps between parameters stay 0
  Buffer loss_partials_, before_, squares_;
};

/// Why no GPU can do the steps of a network in one kernel; "" if a GPU may.
std::string obstacle(const DenseNetwork& network, const ParamStore& params, const GpuUpdate::Operands& end) {
  if (network.weights.size() > kernels::kMostDenseLayers)
    return join("it has ", network.weights.size(), " layers, more than ", kernels::kMostDenseLayers);
  if (params.storage() != params.dtype()) return "its values are in half precision";
  if (params.dtype() == DType::f32 && ops::tf32_allowed()) return "its products are in TF32";
  if (!std::ranges::all_of(params.all(), [](const Param& p) { return p.trainable && p.l2 == 0; }))
    return "it has frozen or penalised parameters";
  if (end.optimizer == nullptr) return "";
  if (!end.optimizer->adam_moments()[0]) return join("the optimizer is ", end.optimizer->name());
  if (end.norm_ranges.size() != 1 || end.norm_ranges.front().begin != 0)
    return "its gradient norm covers several ranges";
  return "";
}

}  // namespace

std::unique_ptr<DenseStep> DenseStep::make(DenseNetwork network, ParamStore& params, const GpuUpdate& update, int rank,
                                           int ranks, std::string& why) {
  const GpuUpdate::Operands end = update.operands();
  why = obstacle(network, params, end);
  if (!why.empty()) return nullptr;
  return visit_float(params.dtype(), [&]<class T>() -> std::unique_ptr<DenseStep> {
    auto step = std::make_unique<DenseStepOf<T>>(std::move(network), params, end, rank, ranks);
    if (step->fits()) return step;
    why = join("its weights and the values of ", kFewRows, " samples take ", step->shared_bytes(),
               " bytes of the shared memory of a block of this GPU, or it cannot run blocks that wait for one another");
    return nullptr;
  });
}

}  // namespace lockstep
