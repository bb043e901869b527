#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "lockstep/device/cuda_copy_async.hpp"
#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "ops/common/activation_cuda.hpp"
#include "ops/common/philox_cuda.hpp"
#include "sequence_classifier_kernels.hpp"

/// Code that the encoder's kernels share: products of rows in shared memory with one weight matrix after another, layer
/// norms of rows, dropout.
namespace lockstep::ops::cuda::classifier {

using gpu::kWarp;

inline constexpr int kWarps = 12, kThreads = kWarps * kWarp;
/// Rows of a block, and rows of a product that a thread computes at once: it reads each weight once for all of them.
inline constexpr int kMostRows = 24, kTileRows = 4;
/// Padding of rows in shared memory: lanes that read 16 bytes of adjacent rows use different banks.
inline constexpr int kGap = 4;

__host__ __device__ inline int round_up(int n) { return (n + 3) / 4 * 4; }

/// Shared memory: arrays of at most kMostRows rows, in elements of real_t<T>, then two slots for weights, in elements
/// of T.
struct BlockPlan {
  std::int64_t sequences = 0, rows = 0;                             ///< per block; rows rounded up to whole tiles
  std::int64_t x = 0, inner = 0, wide = 0, columns = 0, wide2 = 0;  ///< widths with padding
  std::int64_t pairs = 0;                                           ///< two arrays (sequences, heads, T, T)
  std::int64_t slot = 0;                                            ///< elements of a matrix of weights with padding

  /// The layout for this many sequences per block.
  BlockPlan(const ClassifierSizes& s, std::int64_t count, bool backward)
      : sequences(count), rows((count * s.time + kTileRows - 1) / kTileRows * kTileRows) {
    const std::int64_t a = s.heads * s.head_width, scores = round_up(static_cast<int>(s.scores));
    x = s.dim + kGap;
    inner = s.dim + kGap;
    wide = std::max({3 * a, s.mlp, s.patch}) + kGap;
    columns = std::max(a, scores) + kGap;
    wide2 = backward ? std::max(3 * a, s.dim) + kGap : 0;
    pairs = backward ? 2 * round_up(static_cast<int>(count * s.heads * s.time * s.time)) : 0;
    slot = std::max(
        {s.dim * (s.patch + kGap), std::max({a, s.mlp, scores}) * (s.dim + kGap), s.dim * (std::max(a, s.mlp) + kGap)});
  }
  /// Statistics of a row: 1 / deviation and two means of its gradient.
  static constexpr std::int64_t kStatistics = 3;
  /// A multiple of 4, because `rows` is.
  std::int64_t reals() const { return rows * (x + inner + wide + columns + wide2 + kStatistics + 1) + pairs; }
  std::size_t bytes(std::size_t stored, std::size_t real) const {
    return static_cast<std::size_t>(reals()) * real + 2 * static_cast<std::size_t>(slot) * stored;
  }
};

/// The position of a thread, and the arrays of its block.
template <class T>
struct Block {
  using R = real_t<T>;
  int warp, lane, time, dim, heads, width, columns, mlp;
  int sequences, rows;  ///< of this block that exist
  std::int64_t first_sequence, first_row;
  int ld_x, ld_inner, ld_wide, ld_columns, ld_wide2;
  R *sm_x, *sm_inner, *sm_wide, *sm_columns, *sm_wide2, *sm_statistics, *sm_token, *sm_pairs;
  T* sm_slots;

  __device__ Block(const ClassifierSizes& s, const BlockPlan& plan)
      : warp(static_cast<int>(threadIdx.x) / kWarp),
        lane(static_cast<int>(threadIdx.x) % kWarp),
        time(static_cast<int>(s.time)),
        dim(static_cast<int>(s.dim)),
        heads(static_cast<int>(s.heads)),
        width(static_cast<int>(s.head_width)),
        columns(heads * width),
        mlp(static_cast<int>(s.mlp)),
        first_sequence(blockIdx.x * plan.sequences),
        first_row(first_sequence * s.time),
        ld_x(static_cast<int>(plan.x)),
        ld_inner(static_cast<int>(plan.inner)),
        ld_wide(static_cast<int>(plan.wide)),
        ld_columns(static_cast<int>(plan.columns)),
        ld_wide2(static_cast<int>(plan.wide2)) {
    const std::int64_t left = s.windows * s.sequences - first_sequence;
    // mutant-equivalent: either of two equal values
    sequences = static_cast<int>(left < plan.sequences ? left : plan.sequences);
    rows = sequences * time;
    const int all = static_cast<int>(plan.rows);
    sm_x = reinterpret_cast<R*>(sm_bytes);
    sm_inner = sm_x + all * ld_x;
    sm_wide = sm_inner + all * ld_inner;
    sm_columns = sm_wide + all * ld_wide;
    sm_wide2 = sm_columns + all * ld_columns;
    sm_pairs = sm_wide2 + all * ld_wide2;
    sm_statistics = sm_pairs + plan.pairs;
    sm_token = sm_statistics + all * BlockPlan::kStatistics;
    sm_slots = reinterpret_cast<T*>(sm_token + all);
  }
  /// Element (row, c) of an array (M, n).
  __device__ std::int64_t at(int row, int c, int n) const { return (first_row + row) * n + c; }
  /// Calls f(row, column) for each element of the block's rows, a warp per row.
  template <class F>
  __device__ void each(int n, const F& f) const {
    for (int r = warp; r < rows; r += kWarps)
      for (int c = lane; c < n; c += kWarp) f(r, c);
  }
};

/// A matrix of weights (n, k).
template <class T>
struct Matrix {
  const T* at;
  int n, k;
};

/// The matrices that a kernel multiplies with, in order: while the block uses one, the next one is copied to shared
/// memory. order(i) is matrix i of `count`. Rows in shared memory have k + kGap elements; rows n .. round_up(n) - 1 are
/// 0.
template <class T, class Order>
class Weights {
 public:
  __device__ Weights(T* sm_slots, std::int64_t slot, int count, const Order& order)
      : sm_slots_(sm_slots), slot_(slot), count_(count), order_(order) {
    if (count_ > 0) fetch(order_(0), sm_slots_);
  }
  /// The next matrix. Also a barrier: earlier writes of the block to shared memory are then visible.
  __device__ const T* next() {
    gpu::wait_for_copies();
    __syncthreads();
    const T* ready = sm_slots_ + used_ % 2 * slot_;
    if (++used_ < count_) fetch(order_(used_), sm_slots_ + used_ % 2 * slot_);
    return ready;
  }

 private:
  __device__ static void fetch(const Matrix<T>& from, T* to) {
    constexpr int kQuad = 4;
    const int quads = from.k / kQuad, ld = from.k + kGap;
    for (int i = static_cast<int>(threadIdx.x); i < round_up(from.n) * quads; i += kThreads) {
      const int row = i / quads, c = i % quads * kQuad;
      T* there = to + row * ld + c;
      if (row < from.n) {
        gpu::copy_async<kQuad * sizeof(T)>(there, from.at + static_cast<std::int64_t>(row) * from.k + c);
      } else {
        for (int q = 0; q < kQuad; ++q) there[q] = gpu::from_real<T>(0);
      }
    }
  }
  T* sm_slots_;
  std::int64_t slot_;
  int count_, used_ = 0;
  Order order_;
};

/// Products of the block's rows with a matrix (n, k). put(row, column, value) receives each sum, plus the bias, once;
/// sums run in ascending order. A warp has tiles of kTileRows rows and kColumns 32 columns, a lane kColumns of them, 32
/// apart. x and the weights come from shared memory, x as a broadcast to all lanes.
template <int kColumns, class T, class R, class Put>
__device__ void forward_tiles(const Block<T>& b, int n, int k, const R* x, int ld_x, const T* w, const T* bias,
                              const Put& put) {
  constexpr int kPack = gpu::pack_size<R>();
  const int ld = k + kGap, across = gpu::ceil_div(n, kColumns * kWarp), tiles = gpu::ceil_div(b.rows, kTileRows);
  for (int tile = b.warp; tile < across * tiles; tile += kWarps) {
    const int row = tile / across * kTileRows, column = tile % across * (kColumns * kWarp) + b.lane;
    R sum[kTileRows][kColumns] = {};
    const T* own[kColumns];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) own[j] = w + (column + j * kWarp < n ? column + j * kWarp : n - 1) * ld;
#pragma unroll 2
    for (int c = 0; c < k; c += kPack) {
      gpu::Pack<R, kPack> weight[kColumns];
#pragma unroll
      for (int j = 0; j < kColumns; ++j) weight[j] = gpu::load<kPack>(own[j] + c);
#pragma unroll
      for (int r = 0; r < kTileRows; ++r) {
        const gpu::Pack<R, kPack> value = gpu::load<kPack>(x + (row + r) * ld_x + c);
#pragma unroll
        for (int p = 0; p < kPack; ++p)
#pragma unroll
          for (int j = 0; j < kColumns; ++j) sum[r][j] += value.at[p] * weight[j].at[p];
      }
    }
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const int c = column + j * kWarp;
      if (c >= n) continue;
      const R start = gpu::load(bias + c);
#pragma unroll
      for (int r = 0; r < kTileRows; ++r)
        if (row + r < b.rows) put(row + r, c, sum[r][j] + start);
    }
  }
}
/// y_rn = sum_k x_rk w_nk + bias_n. k is a multiple of 4.
template <class T, class R, class Put>
__device__ void multiply(const Block<T>& b, int n, int k, const R* x, int ld_x, const T* w, const T* bias,
                         const Put& put) {
  // With two columns a thread reads less per multiplication; with one, narrow results occupy more warps.
  // mutant-equivalent: both ways give the same sums
  if (gpu::ceil_div(n, 2 * kWarp) * gpu::ceil_div(b.rows, kTileRows) >= kWarps)
    forward_tiles<2>(b, n, k, x, ld_x, w, bias, put);
  else
    forward_tiles<1>(b, n, k, x, ld_x, w, bias, put);
}

/// dx_rk = start(r, k) + sum_n dy_rn w_nk. Columns n .. round_up(n) - 1 of dy are 0.
template <int kColumns, class T, class R, class Start, class Put>
__device__ void backward_tiles(const Block<T>& b, int n, int k, const R* dy, int ld_dy, const T* w, const Start& start,
                               const Put& put) {
  constexpr int kPack = gpu::pack_size<R>();
  const int ld = k + kGap, across = gpu::ceil_div(k, kColumns * kWarp), tiles = gpu::ceil_div(b.rows, kTileRows);
  for (int tile = b.warp; tile < across * tiles; tile += kWarps) {
    const int row = tile / across * kTileRows, column = tile % across * (kColumns * kWarp) + b.lane;
    R sum[kTileRows][kColumns];
    const T* own[kColumns];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const bool there = column + j * kWarp < k;
      own[j] = w + (there ? column + j * kWarp : k - 1);
#pragma unroll
      for (int r = 0; r < kTileRows; ++r)
        sum[r][j] = there && row + r < b.rows ? start(row + r, column + j * kWarp) : R{0};
    }
#pragma unroll 2
    for (int i = 0; i < n; i += kPack) {
      R weight[kPack][kColumns];
#pragma unroll
      for (int p = 0; p < kPack; ++p)
#pragma unroll
        for (int j = 0; j < kColumns; ++j) weight[p][j] = gpu::load(own[j] + (i + p) * ld);
#pragma unroll
      for (int r = 0; r < kTileRows; ++r) {
        const gpu::Pack<R, kPack> value = gpu::load<kPack>(dy + (row + r) * ld_dy + i);
#pragma unroll
        for (int p = 0; p < kPack; ++p)
#pragma unroll
          for (int j = 0; j < kColumns; ++j) sum[r][j] += value.at[p] * weight[p][j];
      }
    }
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
      for (int r = 0; r < kTileRows; ++r)
        if (row + r < b.rows && column + j * kWarp < k) put(row + r, column + j * kWarp, sum[r][j]);
  }
}
template <class T, class R, class Start, class Put>
__device__ void multiply_back(const Block<T>& b, int n, int k, const R* dy, int ld_dy, const T* w, const Start& start,
                              const Put& put) {
  // mutant-equivalent: both ways give the same sums
  if (gpu::ceil_div(k, 2 * kWarp) * gpu::ceil_div(b.rows, kTileRows) >= kWarps)
    backward_tiles<2>(b, n, k, dy, ld_dy, w, start, put);
  else
    backward_tiles<1>(b, n, k, dy, ld_dy, w, start, put);
}

/// The mean of a row and 1 / its deviation, for a warp; value(c) is column c.
template <class R, class Value>
__device__ void row_statistics(int n, int lane, R eps, R& mean, R& rstd, const Value& value) {
  const R count = static_cast<R>(n);
  R sum = 0, squares = 0;
  for (int c = lane; c < n; c += kWarp) sum += value(c);
  mean = gpu::warp_reduce(sum) / count;
  for (int c = lane; c < n; c += kWarp) squares += (value(c) - mean) * (value(c) - mean);
  rstd = 1 / std::sqrt(gpu::warp_reduce(squares) / count + eps);
}

/// Calls put(row, c, y) for the layer norm y of each row of x. put() may write to x.
template <class T, class R, class Put>
__device__ void normalise(const Block<T>& b, const R* x, int ld, const T* weights, const ClassifierPlaces::Norm& norm,
                          R eps, const Put& put) {
  for (int r = b.warp; r < b.rows; r += kWarps) {
    const auto value = [&](int c) { return x[r * ld + c]; };
    R m, s;
    row_statistics(b.dim, b.lane, eps, m, s, value);
    for (int c = b.lane; c < b.dim; c += kWarp)
      put(r, c, (value(c) - m) * s * gpu::load(weights + norm.gamma + c) + gpu::load(weights + norm.beta + c));
  }
}

/// Dropout of arrays (M, width) at one site, keyed by sequence.
template <class R>
class Drops {
 public:
  __device__ Drops(const ClassifierDropout& d, std::uint64_t step, Site site, std::int64_t first_sequence, int time,
                   int width, gpu::Drop<R> drop)
      : on_(drop.threshold > 0),  // a comparison of doubles takes long
        dropout_{.rate = d.encoder, .seed = d.seed, .step = step, .site = site},
        samples_(d.sequence_samples.data() + first_sequence),
        time_(time),
        width_(width),
        drop_(drop) {}
  __device__ R operator()(int row, int c, R x) {
    R unused = 0;  // mutant-equivalent: nobody reads it
    apply(row, c, x, unused);
    return x;
  }
  /// Drops both values or none. A Philox block has the draws of four elements 32 apart, and adjacent rows and columns
  /// of a tile share blocks.
  __device__ void apply(int row, int c, R& x, R& y) {
    if (!on_) return;
    const int sequence = row / time_, i = (row - sequence * time_) * width_ + c;
    constexpr int kGroup = static_cast<int>(gpu::kGroupDraws);
    const int group = i / kGroup, place = i % kWarp;
    if (sequence != sequence_ || group != group_ || place != place_) {
      draws_ = gpu::LaneDraws(dropout_.draws(samples_[sequence]), static_cast<std::uint64_t>(group), place);
      sequence_ = sequence, group_ = group, place_ = place;
    }
    const std::uint32_t draw = draws_.at(i % kGroup / kWarp);
    x = drop_(x, draw);
    y = drop_(y, draw);
  }

 private:
  bool on_;
  Dropout dropout_;
  const std::uint64_t* samples_;
  int time_, width_, sequence_ = -1, group_ = -1, place_ = -1;
  gpu::Drop<R> drop_;
  gpu::LaneDraws draws_;
};

/// A group of lanes for each query, one lane for each key: T rounded up to a power of two.
struct QueryLanes {
  int lanes, key, group, groups;
  __device__ QueryLanes(int time, int lane) : lanes(1) {
    while (lanes < time) lanes *= 2;  // mutant-equivalent: more lanes give the same sums
    key = lane % lanes;
    group = lane / lanes;
    groups = kWarp / lanes;
  }
  /// Reduces over the lanes of a query; the result is that of a warp whose other lanes hold the neutral element.
  template <class R, class Op = gpu::Add>
  __device__ R reduce(R value, Op op = {}) const {
    for (int distance = lanes / 2; distance > 0; distance /= 2)
      value = op(value, __shfl_xor_sync(gpu::kWholeWarp, value, distance));
    return value;
  }
};

/// The draw that drops the weight of a query and a key.
__device__ inline std::uint32_t weight_draw(const Philox& philox, const WeightDraws& draws, int head, int query,
                                            int key) {
  const auto row = static_cast<std::uint64_t>(query);
  const std::uint64_t group =
      static_cast<std::uint64_t>(head) * draws.head_groups + row / draws.group_rows * draws.row_groups;
  const int place =
      static_cast<int>(row % draws.group_rows * (static_cast<std::uint64_t>(gpu::kGroupDraws) / draws.group_rows)) +
      key;
  return gpu::LaneDraws(philox, group, place % kWarp).at(place / kWarp);
}

}  // namespace lockstep::ops::cuda::classifier
