#include <algorithm>
#include <cmath>
#include <limits>

#include "attention_kernels.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "lockstep/device/cuda_scratch.hpp"
#include "ops/common/half_attention_cuda.hpp"
#include "ops/common/map_cuda.hpp"
#include "ops/common/philox_cuda.hpp"
#include "ops/common/rope_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

using gpu::kWarp;

/// A warp has kRows rows (queries, or keys in the gradient of keys and values). The opposite side is processed in tiles
/// with one row per lane. Each value of a tile that is read from shared memory is used in kRows multiplications.
constexpr int kRows = 4;
constexpr int kMostWarps = 8;
/// Padding between the rows of a tile in shared memory, so that lanes that each read 16 bytes of their own row use
/// different banks.
constexpr int kGap = 4;

/// The position of a thread in the work, and the shared memory of its block. Each lane holds kChunks columns of a row.
template <class T, int kChunks>
struct Place {
  static constexpr int kWidth = kChunks * kWarp, kTileStride = kWidth + kGap;
  std::int64_t b, h, first;  ///< sequence, head, first row of the block
  int warp, lane;
  int mine;  ///< first row of the warp within the block

  __device__ Place(const Attention<T>& a)
      : warp(static_cast<int>(threadIdx.y)), lane(static_cast<int>(threadIdx.x)), mine(warp * kRows) {
    const std::int64_t rows = std::int64_t{blockDim.y} * kRows, blocks = gpu::ceil_div(a.time, rows);
    const std::int64_t head = blockIdx.x / blocks;
    b = head / a.heads;
    h = head % a.heads;
    first = blockIdx.x % blocks * rows;  // mutant-equivalent: another block does the same work
  }
  __device__ std::int64_t row(int r) const { return first + mine + r; }
  /// Column 0 of this head at position 0, in an array with rows `stride` apart.
  template <class P>
  __device__ P* head(P* x, const Attention<T>& a, std::int64_t stride) const {
    return x + b * a.time * stride + h * a.width;
  }
  __device__ std::int64_t head_rows(const Attention<T>& a) const { return (b * a.heads + h) * a.time; }
};

/// Copies rows first .. first + count - 1 of a head to shared memory; rows that do not exist become 0. All warps must
/// call it.
template <class T>
__device__ void fetch(T* to, int to_stride, int padded_width, const T* from, std::int64_t stride, std::int64_t first,
                      int count, std::int64_t time, std::int64_t width, const Turned<T>& turned = {}) {
  for (int r = static_cast<int>(threadIdx.y); r < count; r += static_cast<int>(blockDim.y)) {
    const bool there = first + r < time;
    const T* const row = from + (first + r) * stride;
    T* const sm_row = to + r * to_stride;
    if (turned) {
      for (int c = static_cast<int>(threadIdx.x); c < padded_width - turned.half; c += kWarp) {
        gpu::Pack<T, 1> lower = {}, upper = {};
        if (there && c < turned.half) turned.template load<1>(lower, upper, row, first + r, c);
        if (c < turned.half) sm_row[c] = lower.at[0];
        sm_row[c + turned.half] = upper.at[0];  // 0 beyond the last column
      }
      continue;
    }
    for (int c = static_cast<int>(threadIdx.x); c < padded_width; c += kWarp)
      sm_row[c] = there && c < width ? gpu::load(row + c) : T{0};
  }
}

/// s_r = sum_c rows_rc tile_c for the lane's row of the tile.
template <class T>
__device__ void products(T (&s)[kRows], const T* rows, int stride, const T* tile_row, int width) {
  constexpr int kPack = gpu::pack_size<T>();
#pragma unroll
  for (int r = 0; r < kRows; ++r) s[r] = 0;
#pragma unroll 2
  for (int c = 0; c < width; c += kPack) {
    const gpu::Pack<T, kPack> t = gpu::load<kPack>(tile_row + c);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const gpu::Pack<T, kPack> x = gpu::load<kPack>(rows + r * stride + c);
#pragma unroll
      for (int k = 0; k < kPack; ++k) s[r] += x.at[k] * t.at[k];
    }
  }
}

/// sum_r,chunk += sum over the tile's rows of weight_r,row tile_row,column. The lane has columns chunk 32 + lane.
template <class T, int kChunks>
__device__ void accumulate(T (&sum)[kRows][kChunks], const T* weights, const T* tile, int stride, int lane) {
  constexpr int kPack = gpu::pack_size<T>();
#pragma unroll 2
  for (int j = 0; j < kWarp; j += kPack) {  // mutant-equivalent: kWarp is a multiple of kPack
    gpu::Pack<T, kPack> w[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) w[r] = gpu::load<kPack>(weights + r * kWarp + j);
#pragma unroll
    for (int k = 0; k < kPack; ++k)
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        const T value = tile[(j + k) * stride + chunk * kWarp + lane];
#pragma unroll
        for (int r = 0; r < kRows; ++r) sum[r][chunk] += w[r].at[k] * value;
      }
  }
}

/// The first draw for the weights of query i: its group and its offset in the group.
struct RowDraws {
  std::uint64_t group;
  int offset;
  __device__ RowDraws(const WeightDraws& d, std::int64_t h, std::int64_t i) {
    const auto row = static_cast<std::uint64_t>(i);
    group = static_cast<std::uint64_t>(h) * d.head_groups + row / d.group_rows * d.row_groups;
    offset = static_cast<int>(row % d.group_rows * (gpu::kGroupDraws / d.group_rows));
  }
};

/// Dropout of the weights of a warp's queries over tiles of 32 keys, one key per lane. One Philox block serves four
/// tiles of a lane.
template <class T>
class QueryDropout {
 public:
  __device__ QueryDropout(const Attention<T>& a, std::int64_t b, std::int64_t h, std::int64_t first, int lane,
                          gpu::Drop<T> drop)
      : on_(a.dropout.rate > 0), philox_(a.dropout.draws(on_ ? a.samples[b] : 0)), drop_(drop) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const RowDraws row(a.draws, h, first + r);
      group_[r] = row.group;
      offset_[r] = row.offset + lane;
    }
  }
  /// Call before the tile that begins with key j.
  __device__ void advance(std::int64_t j) {
    if (!on_) return;
    tile_ = static_cast<int>(j % gpu::kGroupDraws);
    if (tile_ != 0) return;
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      draws_[r] =
          gpu::LaneDraws(philox_, group_[r] + static_cast<std::uint64_t>(j / gpu::kGroupDraws), offset_[r] % kWarp);
  }
  __device__ T operator()(int r, T x) const {
    return on_ ? drop_(x, draws_[r].at((offset_[r] + tile_) / kWarp % 4)) : x;
  }

 private:
  bool on_;
  Philox philox_;
  gpu::Drop<T> drop_;
  std::uint64_t group_[kRows];
  int offset_[kRows], tile_ = 0;
  gpu::LaneDraws draws_[kRows];
};

/// A block per group of query rows of one head; keys and values are processed in tiles. Scores, softmax and weighted
/// values are computed in one pass that rescales its sums when the largest score grows. Only registers and 32 columns
/// of shared memory hold weights; no (T, T) array exists. Reads q once and k, v once per block, writes y and lse. Sums
/// over keys run in ascending order of tiles.
/// source   Dao et al. 2022, arXiv:2205.14135
template <class T, int kChunks>
__global__ void __launch_bounds__(kWarp* kMostWarps, sizeof(T) == 4 ? 2 : 1)
    attention_forward_kernel(Attention<T> a, gpu::Drop<T> drop) {
  using P = Place<T, kChunks>;
  const P at(a);
  const Turned<T> turned = {a.cos, a.sin, static_cast<int>(a.width / 2)};
  const int rows = static_cast<int>(blockDim.y) * kRows, width = static_cast<int>((a.width + 3) / 4 * 4);
  T* sm_q = reinterpret_cast<T*>(sm_bytes);
  T* sm_k = sm_q + rows * P::kWidth;
  T* sm_v = sm_k + kWarp * P::kTileStride;
  T* sm_p = sm_v + kWarp * P::kTileStride + at.mine * kWarp;
  const T *k = at.head(a.k, a, a.stride), *v = at.head(a.v, a, a.stride);
  fetch(sm_q, P::kWidth, P::kWidth, at.head(a.q, a, a.stride), a.stride, at.first, rows, a.time, a.width, turned);
  constexpr T kNone = -std::numeric_limits<T>::infinity();
  T largest[kRows], sum[kRows] = {}, y[kRows][kChunks] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) largest[r] = kNone;
  QueryDropout<T> dropped(a, at.b, at.h, at.row(0), at.lane, drop);
  for (std::int64_t j = 0; j < a.time; j += kWarp) {
    __syncthreads();  // all warps have finished with the previous tile
    fetch(sm_k, P::kTileStride, P::kWidth, k, a.stride, j, kWarp, a.time, a.width, turned);
    fetch(sm_v, P::kTileStride, P::kWidth, v, a.stride, j, kWarp, a.time, a.width);
    __syncthreads();
    T s[kRows];
    products(s, sm_q + at.mine * P::kWidth, P::kWidth, sm_k + at.lane * P::kTileStride, width);
    dropped.advance(j);
    const bool there = j + at.lane < a.time;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const T score = there ? a.scale * s[r] : kNone;
      const T top = gpu::Max()(gpu::warp_reduce(score, gpu::Max()), largest[r]);
      const T shrink = std::exp(largest[r] - top), p = there ? std::exp(score - top) : T{0};
      largest[r] = top;
      sum[r] = sum[r] * shrink + p;  // the lane's share of the sum
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) y[r][chunk] *= shrink;
      sm_p[r * kWarp + at.lane] = dropped(r, p);
    }
    __syncwarp();
    accumulate(y, sm_p, sm_v, P::kTileStride, at.lane);
  }
  const std::int64_t columns = a.heads * a.width;
  T* to = at.head(a.y, a, columns);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const T total = gpu::warp_reduce(sum[r]);
    if (at.row(r) >= a.time) continue;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk)
      if (chunk * kWarp + at.lane < a.width)
        gpu::store(to + at.row(r) * columns + chunk * kWarp + at.lane, y[r][chunk] / total);
    if (a.lse != nullptr && at.lane == 0) a.lse[at.head_rows(a) + at.row(r)] = largest[r] + std::log(total);
  }
}

/// Stores or adds the gradients of the warp's rows. Gradients of rows that were rotated when they were loaded
/// (`turned`) are rotated back, through the warp's rows of shared memory, and always stored.
template <class T, int kChunks>
__device__ void put_rows(T* all, bool add, const T (&found)[kRows][kChunks], const Place<T, kChunks>& at,
                         const Attention<T>& a, const Turned<T>& turned, T* sm_mine) {
  constexpr int kWidth = Place<T, kChunks>::kWidth;
  T* const to = at.head(all, a, a.stride);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (at.row(r) >= a.time) continue;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int c = chunk * kWarp + at.lane;
      if (turned)
        sm_mine[r * kWidth + c] = found[r][chunk];
      else if (c < a.width)
        gpu::store(to + at.row(r) * a.stride + c, found[r][chunk], add);
    }
  }
  if (!turned) return;
  __syncwarp();
  turned.template put_back<1>(to, a.stride, sm_mine, kWidth, at.row(0), kRows, a.time);
}

/// The gradient of the queries, with the same grid as the forward: ds_ij from recomputed scores, dq_i = sum_j ds_ij
/// k_j. Also the row sums mean_i = sum_j p_ij dp_ij = sum_c dy_ic y_ic, laid out as lse.
template <class T, int kChunks>
__global__ void __launch_bounds__(kWarp* kMostWarps, sizeof(T) == 4 ? 2 : 1)
    attention_queries_kernel(Attention<T> a, T* __restrict__ mean, gpu::Drop<T> drop) {
  using P = Place<T, kChunks>;
  const P at(a);
  const Turned<T> turned = {a.cos, a.sin, static_cast<int>(a.width / 2)};
  const int rows = static_cast<int>(blockDim.y) * kRows, width = static_cast<int>((a.width + 3) / 4 * 4);
  const std::int64_t columns = a.heads * a.width;
  T* sm_q = reinterpret_cast<T*>(sm_bytes);
  T* sm_dy = sm_q + rows * P::kWidth;
  T* sm_k = sm_dy + rows * P::kWidth;
  T* sm_v = sm_k + kWarp * P::kTileStride;
  T* sm_ds = sm_v + kWarp * P::kTileStride + at.mine * kWarp;
  const T *k = at.head(a.k, a, a.stride), *v = at.head(a.v, a, a.stride);
  fetch(sm_q, P::kWidth, P::kWidth, at.head(a.q, a, a.stride), a.stride, at.first, rows, a.time, a.width, turned);
  fetch(sm_dy, P::kWidth, P::kWidth, at.head(a.dy, a, columns), columns, at.first, rows, a.time, a.width);
  T lse[kRows], middle[kRows], dq[kRows][kChunks] = {};
  const T* y = at.head(a.y, a, columns);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const bool there = at.row(r) < a.time;
    lse[r] = there ? a.lse[at.head_rows(a) + at.row(r)] : T{0};
    T sum = 0;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {  // mutant-equivalent: a head is no wider
      const int c = chunk * kWarp + at.lane;
      if (there && c < a.width) {
        const std::int64_t i = at.row(r) * columns + c;
        sum += gpu::load(at.head(a.dy, a, columns) + i) * gpu::load(y + i);
      }
    }
    middle[r] = gpu::warp_reduce(sum);
    if (there && at.lane == 0) mean[at.head_rows(a) + at.row(r)] = middle[r];
  }
  QueryDropout<T> dropped(a, at.b, at.h, at.row(0), at.lane, drop);
  for (std::int64_t j = 0; j < a.time; j += kWarp) {
    __syncthreads();
    fetch(sm_k, P::kTileStride, P::kWidth, k, a.stride, j, kWarp, a.time, a.width, turned);
    fetch(sm_v, P::kTileStride, P::kWidth, v, a.stride, j, kWarp, a.time, a.width);
    __syncthreads();
    T s[kRows], dp[kRows];
    products(s, sm_q + at.mine * P::kWidth, P::kWidth, sm_k + at.lane * P::kTileStride, width);
    products(dp, sm_dy + at.mine * P::kWidth, P::kWidth, sm_v + at.lane * P::kTileStride, width);
    dropped.advance(j);
    const bool there = j + at.lane < a.time;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const T p = there ? std::exp(a.scale * s[r] - lse[r]) : T{0};
      sm_ds[r * kWarp + at.lane] = p * (dropped(r, dp[r]) - middle[r]) * a.scale;
    }
    __syncwarp();
    accumulate(dq, sm_ds, sm_k, P::kTileStride, at.lane);
  }
  put_rows(a.dq, a.add_dq, dq, at, a, turned, sm_q + at.mine * P::kWidth);
}

/// The gradients of keys and values: warps own rows of keys, queries are processed in tiles, one per lane. Scores are
/// recomputed again, so each gradient has one owner and needs no atomics.
template <class T, int kChunks>
__global__ void __launch_bounds__(kWarp* kMostWarps, sizeof(T) == 4 ? 2 : 1)
    attention_keys_kernel(Attention<T> a, const T* __restrict__ mean, gpu::Drop<T> drop) {
  using P = Place<T, kChunks>;
  const P at(a);
  const Turned<T> turned = {a.cos, a.sin, static_cast<int>(a.width / 2)};
  const int rows = static_cast<int>(blockDim.y) * kRows, width = static_cast<int>((a.width + 3) / 4 * 4);
  const std::int64_t columns = a.heads * a.width;
  T* sm_k = reinterpret_cast<T*>(sm_bytes);
  T* sm_v = sm_k + rows * P::kWidth;
  T* sm_q = sm_v + rows * P::kWidth;
  T* sm_dy = sm_q + kWarp * P::kTileStride;
  T* sm_p = sm_dy + kWarp * P::kTileStride + 2 * at.mine * kWarp;
  T* sm_ds = sm_p + kRows * kWarp;
  const T *q = at.head(a.q, a, a.stride), *dy = at.head(a.dy, a, columns);
  fetch(sm_k, P::kWidth, P::kWidth, at.head(a.k, a, a.stride), a.stride, at.first, rows, a.time, a.width, turned);
  fetch(sm_v, P::kWidth, P::kWidth, at.head(a.v, a, a.stride), a.stride, at.first, rows, a.time, a.width);
  T dk[kRows][kChunks] = {}, dv[kRows][kChunks] = {};
  const bool drops = a.dropout.rate > 0;
  const Philox philox = a.dropout.draws(drops ? a.samples[at.b] : 0);
  for (std::int64_t i = 0; i < a.time; i += kWarp) {
    __syncthreads();
    fetch(sm_q, P::kTileStride, P::kWidth, q, a.stride, i, kWarp, a.time, a.width, turned);
    fetch(sm_dy, P::kTileStride, P::kWidth, dy, columns, i, kWarp, a.time, a.width);
    __syncthreads();
    T s[kRows], dp[kRows];
    products(s, sm_k + at.mine * P::kWidth, P::kWidth, sm_q + at.lane * P::kTileStride, width);
    products(dp, sm_v + at.mine * P::kWidth, P::kWidth, sm_dy + at.lane * P::kTileStride, width);
    const std::int64_t query = i + at.lane;
    const bool there = query < a.time;
    const T lse = there ? a.lse[at.head_rows(a) + query] : T{0}, middle = there ? mean[at.head_rows(a) + query] : T{0};
    T p[kRows], kept[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) p[r] = kept[r] = there ? std::exp(a.scale * s[r] - lse) : T{0};
    if (drops) {  // the keys of a warp are adjacent, so two Philox blocks supply their draws
      const RowDraws row(a.draws, at.h, query);
      const std::int64_t draw = row.offset + at.row(0);
      const gpu::QuadDraws drawn(philox, row.group + static_cast<std::uint64_t>(draw / gpu::kGroupDraws),
                                 static_cast<int>(draw % kWarp));
      const int word = static_cast<int>(draw / kWarp % 4);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        kept[r] = drop(p[r], drawn.at(word, r));
        dp[r] = drop(dp[r], drawn.at(word, r));
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      sm_p[r * kWarp + at.lane] = kept[r];
      sm_ds[r * kWarp + at.lane] = p[r] * (dp[r] - middle) * a.scale;
    }
    __syncwarp();
    accumulate(dv, sm_p, sm_dy, P::kTileStride, at.lane);
    accumulate(dk, sm_ds, sm_q, P::kTileStride, at.lane);
  }
  put_rows(a.dk, a.add_dk, dk, at, a, turned, sm_k + at.mine * P::kWidth);
  put_rows(a.dv, a.add_dv, dv, at, a, {}, static_cast<T*>(nullptr));
}

/// Calls f.template operator()<kChunks>().
template <class F>
void visit_chunks(std::int64_t width, const F& f) {
  if (width <= kWarp) return f.template operator()<1>();
  if (width <= 2 * kWarp) return f.template operator()<2>();
  f.template operator()<4>();
}

/// Blocks for all rows of all heads. Shared memory holds `row_arrays` arrays of the block's rows, two tiles and
/// `weights` rows of 32. products: how many products of all queries with all keys the kernel computes, for the ledger.
template <class T, int kChunks>
gpu::Grid grid_of(const Attention<T>& a, int row_arrays, int weights, int products) {
  const auto warps = static_cast<int>(std::clamp<std::int64_t>(gpu::ceil_div(a.time, kRows), 1, kMostWarps));
  const int rows = warps * kRows;
  using P = Place<T, kChunks>;
  const int values = row_arrays * rows * P::kWidth + 2 * kWarp * P::kTileStride + weights * rows * kWarp;
  return {.grid = a.batch * a.heads * gpu::ceil_div(a.time, rows),
          .block = {kWarp, warps},
          .shared_bytes = static_cast<std::size_t>(values) * sizeof(T),
          .flops = 2.0 * products * static_cast<double>(a.batch * a.heads * a.time * a.time * a.width)};
}

}  // namespace

template <class T>
void attention_forward(const Stream& stream, const Attention<T>& a) {
  if constexpr (!std::is_same_v<T, real_t<T>>) {
    half_attention_forward(stream, HalfAttention<T>{a});
  } else {
    if (a.batch * a.heads * a.time * a.width == 0) return;
    const gpu::Drop<T> drop{cpu::DropRate(a.dropout.rate)};
    visit_chunks(a.width, [&]<int kChunks>() {
      gpu::launch(stream, grid_of<T, kChunks>(a, 1, 1, 2), attention_forward_kernel<T, kChunks>, a, drop);
    });
  }
}

template <class T>
void attention_backward(const Stream& stream, const Attention<T>& a) {
  if constexpr (!std::is_same_v<T, real_t<T>>) {
    half_attention_backward(stream, HalfAttention<T>{a}, a.batch * a.time);
  } else {
    if (a.batch * a.heads * a.time * a.width == 0) return;
    const gpu::Drop<T> drop{cpu::DropRate(a.dropout.rate)};
    T* mean = gpu::scratch<T>(stream, a.batch * a.heads * a.time);
    visit_chunks(a.width, [&]<int kChunks>() {
      gpu::launch(stream, grid_of<T, kChunks>(a, 2, 1, 3), attention_queries_kernel<T, kChunks>, a, mean, drop);
      gpu::launch(stream, grid_of<T, kChunks>(a, 2, 2, 4), attention_keys_kernel<T, kChunks>, a, mean, drop);
    });
  }
}

LOCKSTEP_EACH_STORAGE(attention_forward, attention_backward)

}  // namespace lockstep::ops::cuda
