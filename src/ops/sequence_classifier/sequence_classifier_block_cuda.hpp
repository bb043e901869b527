#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "lockstep/device/cuda_copy_async.hpp"
#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "ops/common/activation_cuda.hpp"
#include "ops/common/philox_cuda.hpp"
#include "ops/common/tile_lane_cuda.hpp"
#include "sequence_classifier_kernels.hpp"

/// Code that the encoder's kernels share: products of rows in shared memory with one weight matrix after another, layer
/// norms of rows, dropout.
namespace lockstep::ops::cuda::classifier {

using gpu::kTileColumns;
using gpu::kTileRows;
using gpu::kWarp;
using gpu::TileLane;

/// A warp per row, where rows are independent.
inline constexpr int kMostRows = 24, kWarps = kMostRows, kThreads = kWarps * kWarp;
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
  /// A multiple of 4, because `rows` is.
  std::int64_t reals() const { return rows * (x + inner + wide + columns + wide2 + 1) + pairs; }
  std::size_t bytes(std::size_t stored, std::size_t real) const {
    return static_cast<std::size_t>(reals()) * real + 2 * static_cast<std::size_t>(slot) * stored;
  }
};

/// Divides integers below 2^31 / d by d.
class Divisor {
 public:
  __device__ explicit Divisor(int d) : inverse_((0x80000000u + static_cast<std::uint32_t>(d) - 1) / d) {}
  __device__ int operator()(int n) const {
    return static_cast<int>((std::uint64_t{static_cast<std::uint32_t>(n)} * inverse_) >> 31);
  }

 private:
  std::uint32_t inverse_;
};

/// The position of a thread, and the arrays of its block.
template <class T>
struct Block {
  using R = real_t<T>;
  int warp, lane, time, dim, heads, width, columns, mlp;
  int sequences, rows;  ///< of this block that exist
  std::int64_t first_sequence, first_row;
  int ld_x, ld_inner, ld_wide, ld_columns, ld_wide2;
  Divisor by_time, by_heads, by_width;
  R *sm_x, *sm_inner, *sm_wide, *sm_columns, *sm_wide2, *sm_token, *sm_pairs;
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
        ld_wide2(static_cast<int>(plan.wide2)),
        by_time(time),
        by_heads(heads),
        by_width(width) {
    const std::int64_t left = s.windows * s.sequences - first_sequence;
    sequences = static_cast<int>(left < plan.sequences ? left : plan.sequences);
    rows = sequences * time;
    const int all = static_cast<int>(plan.rows);
    sm_x = reinterpret_cast<R*>(sm_bytes);
    sm_inner = sm_x + all * ld_x;
    sm_wide = sm_inner + all * ld_inner;
    sm_columns = sm_wide + all * ld_wide;
    sm_wide2 = sm_columns + all * ld_columns;
    sm_pairs = sm_wide2 + all * ld_wide2;
    sm_token = sm_pairs + plan.pairs;
    sm_slots = reinterpret_cast<T*>(sm_token + all);
  }
  /// Element (row, c) of an array (M, n).
  __device__ std::int64_t at(int row, int c, int n) const { return (first_row + row) * n + c; }
  /// Calls f(row, column) for each element of the block's rows, a warp per row.
  template <class F>
  __device__ void each(int n, const F& f) const {
    if (warp >= rows) return;
#pragma unroll 1
    for (int c = lane; c < n; c += kWarp) f(warp, c);
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
#pragma unroll 1
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

/// y_rn = sum_k x_rk w_nk + bias_n, in ascending order, for the block's rows and a matrix (n, k). put(row, column, y)
/// receives each sum once. A lane's columns are 32 apart, so that they share draws of dropout. k is a multiple of 4.
template <class T, class R, class Put>
__device__ void multiply(const Block<T>& b, int n, int k, const R* x, int ld_x, const T* w, const T* bias,
                         const Put& put) {
  constexpr int kPack = gpu::pack_size<R>(), kBothColumns = 2 * kWarp, kAcross = kWarp / kTileColumns;
  const TileLane at(b.lane);
  const int ld = k + kGap, across = gpu::ceil_div(n, kBothColumns) * kAcross,
            tiles = gpu::ceil_div(b.rows, kTileRows) * across;
#pragma unroll 1
  for (int tile = b.warp; tile < tiles; tile += kWarps) {
    const int down = tile / across, right = tile - down * across, row = down * kTileRows + at.row;
    const int first = right / kAcross * kBothColumns + right % kAcross * kTileColumns + at.column,
              second = first + kWarp;
    const int first_read = first < n ? first : n - 1, second_read = second < n ? second : n - 1;
    const R* from = x + row * ld_x;
    const T *own = w + first_read * ld, *other = w + second_read * ld;
    const R start[] = {gpu::load(bias + first_read), gpu::load(bias + second_read)};  // arrive during the loop
    R sum[2] = {};
#pragma unroll 4
    for (int c = 0; c < k; c += kPack) {
      const gpu::Pack<R, kPack> value = gpu::load<kPack>(from + c), left = gpu::load<kPack>(own + c),
                                next = gpu::load<kPack>(other + c);
#pragma unroll
      for (int p = 0; p < kPack; ++p) {
        sum[0] += value.at[p] * left.at[p];
        sum[1] += value.at[p] * next.at[p];
      }
    }
    if (row >= b.rows) continue;
#pragma unroll 1  // one copy of put(), which is long
    for (int j = 0; j < 2; ++j) {
      const int column = j == 0 ? first : second;
      if (column < n) put(row, column, j == 0 ? sum[0] + start[0] : sum[1] + start[1]);
    }
  }
}

/// Calls put(row, k, sum_n dy_rn w_nk, before(row, k)). before() is called before the sums. Columns n .. round_up(n) -
/// 1 of dy are 0. A lane has two adjacent columns.
template <class T, class R, class Before, class Put>
__device__ void multiply_back(const Block<T>& b, int n, int k, const R* dy, int ld_dy, const T* w, const Before& before,
                              const Put& put) {
  constexpr int kPack = gpu::pack_size<R>(), kBothColumns = 2 * kTileColumns;
  const TileLane at(b.lane);
  const int ld = k + kGap, across = gpu::ceil_div(k, kBothColumns), tiles = gpu::ceil_div(b.rows, kTileRows) * across;
#pragma unroll 1
  for (int tile = b.warp; tile < tiles; tile += kWarps) {
    const int down = tile / across, right = tile - down * across, row = down * kTileRows + at.row,
              column = right * kBothColumns + 2 * at.column;
    const bool there = row < b.rows && column < k;
    const R* from = dy + row * ld_dy;
    const T* own = w + (column < k ? column : k - 2);
    R sum[2] = {}, old[2] = {};
    if (there) old[0] = before(row, column), old[1] = before(row, column + 1);
#pragma unroll 2
    for (int i = 0; i < n; i += kPack) {
      const gpu::Pack<R, kPack> value = gpu::load<kPack>(from + i);
#pragma unroll
      for (int p = 0; p < kPack; ++p) {
        const gpu::Pack<R, 2> weight = gpu::load<2>(own + (i + p) * ld);
        sum[0] += value.at[p] * weight.at[0];
        sum[1] += value.at[p] * weight.at[1];
      }
    }
    if (!there) continue;
    put(row, column, sum[0], old[0]);
    put(row, column + 1, sum[1], old[1]);
  }
}

/// The mean of a row and 1 / its deviation, for a warp; value(c) is column c.
template <class R, class Value>
__device__ void row_statistics(int n, int lane, R eps, R& mean, R& rstd, const Value& value) {
  const R count = static_cast<R>(n);
  R sum = 0, squares = 0;
#pragma unroll 1
  for (int c = lane; c < n; c += kWarp) sum += value(c);
  mean = gpu::warp_reduce(sum) / count;
#pragma unroll 1
  for (int c = lane; c < n; c += kWarp) squares += (value(c) - mean) * (value(c) - mean);
  rstd = 1 / std::sqrt(gpu::warp_reduce(squares) / count + eps);
}

/// The values of a vector at a lane's first two columns, loaded before they are needed.
template <class T>
class Ahead {
 public:
  __device__ Ahead(const T* from, int n, int lane) : from_(from), lane_(lane), first_{}, second_{} {
    if (lane < n) first_ = from[lane];
    if (lane + kWarp < n) second_ = from[lane + kWarp];
  }
  __device__ real_t<T> operator[](int c) const {
    return gpu::to_real(c == lane_ ? first_ : c == lane_ + kWarp ? second_ : from_[c]);
  }

 private:
  const T* from_;
  int lane_;
  T first_, second_;
};

/// Calls put(row, c, y) for the layer norm y of each row of x. put() may write to x.
template <class T, class R, class Put>
__device__ void normalise(const Block<T>& b, const R* x, int ld, const T* weights, const ClassifierPlaces::Norm& norm,
                          R eps, const Put& put) {
  const Ahead<T> gamma(weights + norm.gamma, b.dim, b.lane), beta(weights + norm.beta, b.dim, b.lane);
  if (b.warp >= b.rows) return;
  const auto value = [&](int c) { return x[b.warp * ld + c]; };
  R m, s;
  row_statistics(b.dim, b.lane, eps, m, s, value);
  b.each(b.dim, [&](int r, int c) { put(r, c, (value(c) - m) * s * gamma[c] + beta[c]); });
}

/// Copies the samples' numbers of the block's sequences. A barrier must follow.
template <class T>
__device__ void load_samples(const Block<T>& b, const ClassifierDropout& d, bool on, std::uint64_t* sm_samples) {
  const int s = static_cast<int>(threadIdx.x);
  if (on && s < b.sequences) sm_samples[s] = d.sequence_samples[b.first_sequence + s];
}

/// Dropout of arrays (M, width) at one site, keyed by sequence.
template <class R>
class Drops {
 public:
  __device__ Drops(const ClassifierDropout& d, std::uint64_t step, Site site, const std::uint64_t* sm_samples,
                   Divisor by_time, int time, int width, gpu::Drop<R> drop)
      : on_(drop.threshold > 0),  // a comparison of doubles takes long
        dropout_{.rate = d.encoder, .seed = d.seed, .step = step, .site = site},
        sm_samples_(sm_samples),
        by_time_(by_time),
        time_(time),
        width_(width),
        drop_(drop) {}
  __device__ R operator()(int row, int c, R x) {
    R unused = 0;
    apply(row, c, x, unused);
    return x;
  }
  /// Drops both values or none. A Philox block has the draws of four elements 32 apart.
  __device__ void apply(int row, int c, R& x, R& y) {
    if (!on_) return;
    constexpr auto kGroup = static_cast<std::uint32_t>(gpu::kGroupDraws);
    const int sequence = by_time_(row);
    const auto i = static_cast<std::uint32_t>((row - sequence * time_) * width_ + c);
    const std::uint32_t group = i / kGroup, place = i % kWarp;
    if (sequence != sequence_ || group != group_ || place != place_) {
      draws_ = gpu::LaneDraws(dropout_.draws(sm_samples_[sequence]), group, static_cast<int>(place));
      sequence_ = sequence, group_ = group, place_ = place;
    }
    const std::uint32_t draw = draws_.at(static_cast<int>(i % kGroup / kWarp));
    x = drop_(x, draw);
    y = drop_(y, draw);
  }

 private:
  bool on_;
  Dropout dropout_;
  const std::uint64_t* sm_samples_;
  Divisor by_time_;
  int time_, width_, sequence_ = -1;
  std::uint32_t group_ = 0, place_ = 0;
  gpu::Drop<R> drop_;
  gpu::LaneDraws draws_;
};

/// A group of lanes for each query, one lane for each key: T rounded up to a power of two.
struct QueryLanes {
  int lanes, key, group, groups;
  __device__ QueryLanes(int time, int lane) : lanes(1) {
    while (lanes < time) lanes *= 2;
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

/// The position of query (sequence, head, token).
struct Query {
  int sequence, head, token;
  template <class T>
  __device__ Query(const Block<T>& b, int query) {
    const int before = b.by_time(query);
    token = query - before * b.time;
    sequence = b.by_heads(before);
    head = before - sequence * b.heads;
  }
};

/// The draw that drops the weight of a query and a key.
__device__ inline std::uint32_t weight_draw(const Philox& philox, const WeightDraws& draws, int head, int query,
                                            int key) {
  // Narrow integers: divisions of wide ones take long.
  const auto row = static_cast<std::uint32_t>(query), rows = static_cast<std::uint32_t>(draws.group_rows);
  const std::uint64_t group = static_cast<std::uint64_t>(head) * draws.head_groups + row / rows * draws.row_groups;
  const int place = static_cast<int>(row % rows * (static_cast<std::uint32_t>(gpu::kGroupDraws) / rows)) + key;
  return gpu::LaneDraws(philox, group, place % kWarp).at(place / kWarp);
}

}  // namespace lockstep::ops::cuda::classifier
