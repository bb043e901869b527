#include <limits>

#include "half_attention_tiles_cuda.hpp"
#include "lockstep/device/cuda_scratch.hpp"

namespace lockstep::ops::cuda {
namespace {

constexpr int kTile = 32;  ///< rows of a tile, limited by registers

/// Shared memory of a block: two arrays of its own rows, two of a tile's rows, and the bits of the draws.
template <class T, int kWidth>
struct BackwardTiles {
  T *own, *own_too, *tile, *tile_too;
  float *lse, *mean;  ///< of a tile
  std::uint32_t* keeps;
  static std::size_t bytes(int rows) {
    return static_cast<std::size_t>(2 * (rows + kTile) * kHalfStride<kWidth>) * sizeof(T) +
           static_cast<std::size_t>(2 * kTile) * sizeof(float) +
           static_cast<std::size_t>(std::max(rows, kTile) * WeightKeeps<T>::kWords) * sizeof(std::uint32_t);
  }
  __device__ BackwardTiles(unsigned char* memory, int rows)
      : own(reinterpret_cast<T*>(memory)),
        own_too(own + rows * kHalfStride<kWidth>),
        tile(own_too + rows * kHalfStride<kWidth>),
        tile_too(tile + kTile * kHalfStride<kWidth>),
        lse(reinterpret_cast<float*>(tile_too + kTile * kHalfStride<kWidth>)),
        mean(lse + kTile),
        keeps(reinterpret_cast<std::uint32_t*>(mean + kTile)) {}
};

/// Stores or adds the gradients of the warp's rows, rounded to halves. Gradients of rows that were rotated when they
/// were loaded (`turned`) are rotated back, through the warp's rows of shared memory, and always stored.
template <int kWidth, class T>
__device__ void put_rows(T* to, std::int64_t stride, bool add, const float (&x)[kWidth / 8][4], const HalfPlace<T>& at,
                         const PackedAttention<T>& a, const HalfAccess& access, const Turned<T>& turned, T* sm_mine) {
  const float one[2] = {1, 1};
  const int width = static_cast<int>(a.width);
  if (!turned) return store_rows<kWidth>(at.in(to, a, stride), x, one, at, stride, width, add, access.pairs);
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n)
      gpu::store<T, 2>(sm_mine + (at.g + 8 * r) * kHalfStride<kWidth> + 8 * n + 2 * at.t,
                       {x[n][2 * r], x[n][2 * r + 1]});
  __syncwarp();
  const auto put = [&]<int N>() {
    turned.template put_back<N>(at.in(to, a, stride), stride, sm_mine, kHalfStride<kWidth>, at.mine(), kFragmentRows,
                                at.length);
  };
  access.pairs ? put.template operator()<2>() : put.template operator()<1>();
}

/// The gradient of the queries, with the same grid as the forward: ds_ij from recomputed scores, dq_i = sum_j ds_ij
/// k_j. Also the row sums mean_i = sum_j p_ij dp_ij = sum_c dy_ic y_ic, laid out as lse; without a dq only these.
template <class T, int kWidth>
__global__ void __launch_bounds__(kWarp* kAttentionWarps, kWidth <= 64 ? 4 : 2)
    half_queries_kernel(PackedAttention<T> a, HalfAccess access, float* __restrict__ mean, gpu::Drop<float> drop) {
  constexpr int kStride = kHalfStride<kWidth>;
  const HalfPlace<T> at(a);
  if (at.behind >= 0) return at.zero_behind(a, a.add_dq ? nullptr : a.dq, a.stride);
  if (at.first >= at.length) return;
  const int width = static_cast<int>(a.width);
  const std::int64_t columns = a.heads * a.width;
  const BackwardTiles<T, kWidth> sm(sm_bytes, at.rows);
  const int mine = at.warp * kFragmentRows;
  WeightKeeps<T> keeps(a, at, drop, sm.keeps + mine * WeightKeeps<T>::kWords);
  const Turned<T> turned = {a.cos, a.sin, width / 2};
  const auto fetch = [&](T* to, const T* from, std::int64_t stride, int first, int count, const Turned<T>& turn = {}) {
    fetch_rows<kWidth>(to, at.in(from, a, stride), stride, first, count, at.length, width, access.pack, turn);
  };
  fetch(sm.own, a.q, a.stride, at.first, at.rows, turned);
  fetch(sm.own_too, a.dy, columns, at.first, at.rows);

  float dq[kWidth / 8][4] = {}, lse[2], middle[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const bool asks = at.is_query(at.row(r));
    // mutant-equivalent: rows that do not ask have weight 0
    lse[r] = asks ? a.lse[at.in_lse(a, at.row(r))] * kLog2E<float> : 0.0f;
    const std::int64_t row = at.row(r) * columns;
    float sum = 0;  // of every fourth column
    for (int c = at.t; asks && c < width; c += 4)
      sum += gpu::load(at.in(a.dy, a, columns) + row + c) * gpu::load(at.in(a.y, a, columns) + row + c);
    middle[r] = over_row(sum, gpu::Add());
    if (asks && at.t == 0) mean[at.in_lse(a, at.row(r))] = middle[r];
  }
  if (a.dq == nullptr) return;
  const float scale = a.scale * kLog2E<float>;
  // mutant-equivalent: keys beyond the last visible one have weight 0
  const auto last_key = [&](int row) { return a.causal && row < at.length ? row + 1 : at.length; };
  // mutant-equivalent: keys beyond the last visible one have weight 0
  const int end = last_key(at.first + at.rows - 1);  // a fill has no gradient
  for (int tile = 0; tile < end; tile += kTile) {
    __syncthreads();
    fetch(sm.tile, a.k, a.kv_stride, tile, kTile, turned);
    fetch(sm.tile_too, a.v, a.kv_stride, tile, kTile);
    __syncthreads();
    // mutant-equivalent: keys beyond the last visible one have weight 0
    if (at.mine() >= at.length || tile >= last_key(at.mine() + kFragmentRows - 1)) continue;
    if (keeps && tile % gpu::kGroupDraws == 0) {
      keeps.draw(at.mine(), kFragmentRows, tile, at.lane);
      __syncwarp();
    }
    float s[kTile / 8][4], dp[kTile / 8][4];
    row_products<kWidth, kTile>(s, sm.own + mine * kStride, sm.tile, at.lane, width);
    row_products<kWidth, kTile>(dp, sm.own_too + mine * kStride, sm.tile_too, at.lane, width);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = at.row(r);
      const int seen = at.is_query(row) ? last_key(row) - tile : 0;
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n) {
        const std::uint32_t bits = keeps ? keeps.from(at.g + 8 * r, row, tile + 8 * n) : 0;
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = s[n][2 * r + e];
          float d = dp[n][2 * r + e];
          if (keeps) d *= keeps.kept(bits, keeps.in_bits(2 * at.t + e));
          x = 8 * n + 2 * at.t + e < seen ? exp2f(x * scale - lse[r]) * (d - middle[r]) * a.scale : 0.0f;
        }
      }
    }
    add_weighted_rows<kWidth, kTile>(dq, s, sm.tile, at.lane, width);
    __syncwarp();  // before the next draws
  }
  put_rows<kWidth>(a.dq, a.stride, a.add_dq, dq, at, a, access, turned, sm.own + mine * kStride);
}

/// The gradients of keys and values: warps own rows of keys, queries are processed in tiles. Scores are recomputed
/// again, so each gradient has one owner and needs no atomics. The block draws once for all its warps.
template <class T, int kWidth>
__global__ void __launch_bounds__(kWarp* kAttentionWarps, kWidth <= 64 ? 3 : 2)
    half_keys_kernel(PackedAttention<T> a, HalfAccess access, const float* __restrict__ mean, gpu::Drop<float> drop) {
  constexpr int kStride = kHalfStride<kWidth>;
  const HalfPlace<T> at(a, LongestTile::first);
  if (at.behind >= 0) {
    at.zero_behind(a, a.add_dk ? nullptr : a.dk, a.kv_stride);
    return at.zero_behind(a, a.add_dv ? nullptr : a.dv, a.kv_stride);
  }
  if (at.first >= at.length) return;
  const int width = static_cast<int>(a.width);
  const std::int64_t columns = a.heads * a.width;
  const BackwardTiles<T, kWidth> sm(sm_bytes, at.rows);
  const int mine = at.warp * kFragmentRows, thread = at.warp * kWarp + at.lane;
  // mutant-equivalent: a tile has no more rows than a block has threads
  const int threads = at.rows / kFragmentRows * kWarp;
  WeightKeeps<T> keeps(a, at, drop, sm.keeps);
  const Turned<T> turned = {a.cos, a.sin, width / 2};
  const auto fetch = [&](T* to, const T* from, std::int64_t stride, int first, int count, const Turned<T>& turn = {}) {
    fetch_rows<kWidth>(to, at.in(from, a, stride), stride, first, count, at.length, width, access.pack, turn);
  };
  fetch(sm.own, a.k, a.kv_stride, at.first, at.rows, turned);
  fetch(sm.own_too, a.v, a.kv_stride, at.first, at.rows);

  float dk[kWidth / 8][4] = {}, dv[kWidth / 8][4] = {};
  const float scale = a.scale * kLog2E<float>, fill = a.fill * kLog2E<float>;
  // mutant-equivalent: queries that see no key have weight 0
  const bool filled = a.fill > -std::numeric_limits<float>::infinity();
  const int from = a.causal && !filled && at.first > at.first_query ? at.first : at.first_query;
  for (int tile = from / kTile * kTile; tile < at.length; tile += kTile) {
    __syncthreads();
    fetch(sm.tile, a.q, a.stride, tile, kTile, turned);
    fetch(sm.tile_too, a.dy, columns, tile, kTile);
    for (int i = thread; i < kTile; i += threads) {
      const bool asks = at.is_query(tile + i);
      sm.lse[i] = asks ? a.lse[at.in_lse(a, tile + i)] * kLog2E<float> : 0.0f;
      sm.mean[i] = asks ? mean[at.in_lse(a, tile + i)] : 0.0f;
    }
    if (keeps) keeps.draw_all(tile, kTile, at.first, at);
    __syncthreads();
    if (at.mine() >= at.length) continue;
    float s[kTile / 8][4], dp[kTile / 8][4];
    row_products<kWidth, kTile>(s, sm.own + mine * kStride, sm.tile, at.lane, width);
    row_products<kWidth, kTile>(dp, sm.own_too + mine * kStride, sm.tile_too, at.lane, width);
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int i = 8 * n + 2 * at.t + e;
        const int query = tile + i;
        const bool asks = at.is_query(query);
        const float lse = sm.lse[i], middle = sm.mean[i];
        const std::uint32_t bits = keeps ? keeps.from(i, query, at.mine()) : 0;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float &x = s[n][2 * r + e], &d = dp[n][2 * r + e];
          const bool seen = !a.causal || at.row(r) <= query;
          const float p = asks ? exp2f((seen ? x * scale : fill) - lse) : 0.0f;
          const float kept = keeps ? keeps.kept(bits, keeps.in_bits(at.g + 8 * r)) : 1.0f;
          x = p * kept;
          d = seen ? p * (d * kept - middle) * a.scale : 0.0f;
        }
      }
    add_weighted_rows<kWidth, kTile>(dv, s, sm.tile_too, at.lane, width);
    add_weighted_rows<kWidth, kTile>(dk, dp, sm.tile, at.lane, width);
  }
  T* const sm_mine = sm.own + mine * kStride;
  if (a.dk != nullptr) put_rows<kWidth>(a.dk, a.kv_stride, a.add_dk, dk, at, a, access, turned, sm_mine);
  if (a.dv != nullptr) put_rows<kWidth>(a.dv, a.kv_stride, a.add_dv, dv, at, a, access, {}, sm_mine);
}

}  // namespace

template <class T>
void packed_attention_backward(const Stream& stream, const PackedAttention<T>& a, std::int64_t rows) {
  const gpu::Drop<float> drop{cpu::DropRate(a.dropout.rate)};
  const HalfAccess access(a);
  float* mean = gpu::scratch<float>(stream, rows * a.heads);
  visit_half_width(a.width, [&]<int kWidth>() {
    const gpu::Grid grid = packed_grid(stream, a, kFragmentRows, BackwardTiles<T, kWidth>::bytes);
    gpu::launch(stream, grid, half_queries_kernel<T, kWidth>, a, access, mean, drop);
    if (a.dk != nullptr || a.dv != nullptr)
      gpu::launch(stream, grid, half_keys_kernel<T, kWidth>, a, access, mean, drop);
  });
}

template void packed_attention_backward(const Stream&, const PackedAttention<bf16>&, std::int64_t rows);
template void packed_attention_backward(const Stream&, const PackedAttention<f16>&, std::int64_t rows);

}  // namespace lockstep::ops::cuda
