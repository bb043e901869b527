#include <limits>

#include "real_attention_tiles_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

/// Shared memory of a block: two arrays of its own rows, two of a tile's rows, the weights of each warp, and the bits
/// of the draws.
template <class T, int kWidth>
struct BackwardTiles {
  using Tile = RealTile<T, kWidth>;
  T *own, *own_too, *tile, *tile_too, *weights;
  T *lse, *mean;  ///< of a tile
  std::uint32_t* keeps;
  static std::size_t bytes(int rows) {
    const int weights = rows / Tile::kWarpRows * kTileRows * Tile::kWeightStride;
    return static_cast<std::size_t>(2 * (rows + kTileRows) * Tile::kStride + weights + 2 * kTileRows) * sizeof(T) +
           static_cast<std::size_t>(std::max(rows, kTileRows) * WeightKeeps<T>::kWords) * sizeof(std::uint32_t);
  }
  __device__ BackwardTiles(unsigned char* memory, int rows)
      : own(reinterpret_cast<T*>(memory)),
        own_too(own + rows * Tile::kStride),
        tile(own_too + rows * Tile::kStride),
        tile_too(tile + kTileRows * Tile::kStride),
        weights(tile_too + kTileRows * Tile::kStride),
        lse(weights + rows / Tile::kWarpRows * kTileRows * Tile::kWeightStride),
        mean(lse + kTileRows),
        keeps(reinterpret_cast<std::uint32_t*>(mean + kTileRows)) {}
};

/// mean_i = sum_c dy_ic y_ic = sum_j p_ij dp_ij of a row, by kSharers adjacent lanes, of which this is the `share`-th.
template <int kSharers, class T>
__device__ T mean_of(const T* dy, const T* y, int width, int pack, int share) {
  T sum = 0;
  visit_pack<T>(pack, [&]<int N>() {
#pragma unroll 4
    for (int c = share * N; c < width; c += kSharers * N) {
      const gpu::Pack<T, N> a = gpu::load<N>(dy + c), b = gpu::load<N>(y + c);
#pragma unroll
      for (int k = 0; k < N; ++k) sum += a.at[k] * b.at[k];
    }
  });
#pragma unroll
  for (int distance = 1; distance < kSharers; distance *= 2) sum += __shfl_xor_sync(gpu::kWholeWarp, sum, distance);
  return sum;
}

/// The gradient of the queries, with the rows of the forward: ds_ij from recomputed scores, dq_i = sum_j ds_ij k_j.
template <class T, int kWidth>
__device__ void queries_gradient(const PackedAttention<T>& a, std::int64_t block, int pack, gpu::Drop<T> drop) {
  using Tile = RealTile<T, kWidth>;
  constexpr int kRows = Tile::kRows;
  const RealPlace<T, kWidth> at(a, block, LongestTile::last);
  if (at.first >= at.end) return;
  const int width = static_cast<int>(a.width), mine = at.warp * Tile::kWarpRows;
  const std::int64_t columns = a.heads * a.width;
  const BackwardTiles<T, kWidth> sm(sm_bytes, at.rows);
  T* const sm_weights = sm.weights + at.warp * kTileRows * Tile::kWeightStride;
  WeightKeeps<T> keeps(a, at, drop, sm.keeps + mine * WeightKeeps<T>::kWords);
  const Turned<T> turned = {a.cos, a.sin, width / 2};
  const auto fetch = [&](T* to, const T* from, std::int64_t stride, int first, int count, int end,
                         const Turned<T>& turn = {}) {
    visit_pack<T>(pack, [&]<int N>() {
      fetch_packs<kWidth, N>(to, at.in(from, a, stride), stride, first, count, end, width, turn);
    });
  };
  fetch(sm.own, a.q, a.stride, at.first, at.rows, at.end, turned);
  fetch(sm.own_too, a.dy, columns, at.first, at.rows, at.end);

  T dq[kRows][Tile::kColumns] = {}, lse[kRows], middle[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const bool asks = at.is_query(at.row(r));
    lse[r] = asks ? a.lse[at.in_lse(a, at.row(r))] * kLog2E<T> : T{0};
    const std::int64_t row = asks ? at.row(r) * columns : 0;
    middle[r] = mean_of<8>(at.in(a.dy, a, columns) + row, at.in(a.y, a, columns) + row, asks ? width : 0, pack, at.t);
  }
  const T scale = a.scale * kLog2E<T>;
  // The number of keys that a row sees; a fill has no gradient.
  const auto visible = [&](int row) { return a.causal ? row + 1 : at.length; };
  const int end = at.end > at.first_query ? visible(at.end - 1) : 0, my_end = at.asks() ? visible(at.my_end() - 1) : 0;
  for (int tile = 0; tile < end; tile += kTileRows) {
    __syncthreads();
    fetch(sm.tile, a.k, a.kv_stride, tile, kTileRows, at.length, turned);
    fetch(sm.tile_too, a.v, a.kv_stride, tile, kTileRows, at.length);
    gpu::wait_for_copies();
    __syncthreads();
    const int count = my_end - tile;
    if (count <= 0) continue;
    if (keeps && tile % gpu::kGroupDraws == 0) keeps.draw(at.mine(), Tile::kWarpRows, tile, at.lane);
    T s[kRows][kTileRowsOfLane], dp[kRows][kTileRowsOfLane];
    row_products<kWidth>(s, sm.own + mine * Tile::kStride, sm.tile, at, width, count);
    row_products<kWidth>(dp, sm.own_too + mine * Tile::kStride, sm.tile_too, at, width, count);
    __syncwarp();  // the draws are there, and the previous weights are no longer in use
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = at.row(r);
      const int seen = at.is_query(row) ? visible(row) - tile : 0;
      const std::uint32_t bits = keeps ? keeps.from(at.g + 4 * r, row, tile) : 0;
#pragma unroll
      for (int n = 0; n < kTileRowsOfLane; ++n) {
        const int j = at.t + 8 * n;
        T d = dp[r][n];
        if (keeps) d *= keeps.kept(bits, keeps.in_bits(j));
        s[r][n] = j < seen ? std::exp2(s[r][n] * scale - lse[r]) * (d - middle[r]) * a.scale : T{0};
      }
    }
    put_weights<kWidth>(sm_weights, s, at);
    __syncwarp();
    add_weighted_rows<kWidth>(dq, sm_weights, sm.tile, at, count < kTileRows ? count : kTileRows);
  }
  put_rows<kWidth>(a.dq, a.stride, a.add_dq, dq, at, a, pack, turned, sm.own + mine * Tile::kStride);
}

/// The gradients of keys and values: warps own rows of keys, queries are processed in tiles. Scores are recomputed
/// again, so each gradient has one owner and needs no atomics. The block draws once for all its warps.
template <class T, int kWidth>
__device__ void keys_gradient(const PackedAttention<T>& a, std::int64_t block, int pack, gpu::Drop<T> drop) {
  using Tile = RealTile<T, kWidth>;
  constexpr int kRows = Tile::kRows;
  const RealPlace<T, kWidth> at(a, block, LongestTile::first);
  if (at.first >= at.end) return;
  const int width = static_cast<int>(a.width), mine = at.warp * Tile::kWarpRows;
  constexpr int kSharers = 4;  // lanes that add a row's mean
  const int thread = at.warp * kWarp + at.lane, threads = static_cast<int>(blockDim.y) * kWarp;
  const std::int64_t columns = a.heads * a.width;
  const BackwardTiles<T, kWidth> sm(sm_bytes, at.rows);
  T* const sm_weights = sm.weights + at.warp * kTileRows * Tile::kWeightStride;
  WeightKeeps<T> keeps(a, at, drop, sm.keeps);
  const Turned<T> turned = {a.cos, a.sin, width / 2};
  const auto fetch = [&](T* to, const T* from, std::int64_t stride, int first, int count, const Turned<T>& turn = {}) {
    visit_pack<T>(pack, [&]<int N>() {
      fetch_packs<kWidth, N>(to, at.in(from, a, stride), stride, first, count, at.length, width, turn);
    });
  };
  fetch(sm.own, a.k, a.kv_stride, at.first, at.rows, turned);
  fetch(sm.own_too, a.v, a.kv_stride, at.first, at.rows);

  T dk[kRows][Tile::kColumns] = {}, dv[kRows][Tile::kColumns] = {};
  const T scale = a.scale * kLog2E<T>, fill = a.fill * kLog2E<T>;
  const bool filled = a.fill > -std::numeric_limits<T>::infinity();
  const auto first_of = [&](int key) { return a.causal && !filled && key > at.first_query ? key : at.first_query; };
  const int my_first = at.mine() < at.length ? first_of(at.mine()) : at.length;
  for (int tile = first_of(at.first) / kTileRows * kTileRows; tile < at.length; tile += kTileRows) {
    __syncthreads();
    fetch(sm.tile, a.q, a.stride, tile, kTileRows, turned);
    fetch(sm.tile_too, a.dy, columns, tile, kTileRows);
    for (int i = thread / kSharers; i < kTileRows; i += threads / kSharers) {
      const bool asks = at.is_query(tile + i);
      const std::int64_t row = asks ? (tile + i) * columns : 0;
      const T middle = mean_of<kSharers>(at.in(a.dy, a, columns) + row, at.in(a.y, a, columns) + row, asks ? width : 0,
                                         pack, thread % kSharers);
      if (thread % kSharers != 0) continue;
      sm.lse[i] = asks ? a.lse[at.in_lse(a, tile + i)] * kLog2E<T> : T{0};
      sm.mean[i] = middle;
    }
    if (keeps) keeps.draw_all(tile, kTileRows, at.first, at);
    gpu::wait_for_copies();
    __syncthreads();
    if (tile + kTileRows <= my_first) continue;
    const int count = at.length - tile < kTileRows ? at.length - tile : kTileRows;
    T s[kRows][kTileRowsOfLane], dp[kRows][kTileRowsOfLane];
    row_products<kWidth>(s, sm.own + mine * Tile::kStride, sm.tile, at, width, count);
    row_products<kWidth>(dp, sm.own_too + mine * Tile::kStride, sm.tile_too, at, width, count);
#pragma unroll
    for (int n = 0; n < kTileRowsOfLane; ++n) {
      const int i = at.t + 8 * n, query = tile + i;
      const bool asks = at.is_query(query);
      const T lse = sm.lse[i], middle = sm.mean[i];
      const std::uint32_t bits = keeps ? keeps.from(i, query, at.mine()) : 0;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        T &x = s[r][n], &d = dp[r][n];
        const bool seen = !a.causal || at.row(r) <= query;
        const T p = asks ? std::exp2((seen ? x * scale : fill) - lse) : T{0};
        const T kept = keeps ? keeps.kept(bits, keeps.in_bits(at.g + 4 * r)) : T{1};
        x = p * kept;
        d = seen ? p * (d * kept - middle) * a.scale : T{0};
      }
    }
    __syncwarp();  // the previous weights are no longer in use
    put_weights<kWidth>(sm_weights, s, at);
    __syncwarp();
    add_weighted_rows<kWidth>(dv, sm_weights, sm.tile_too, at, count);
    __syncwarp();
    put_weights<kWidth>(sm_weights, dp, at);
    __syncwarp();
    add_weighted_rows<kWidth>(dk, sm_weights, sm.tile, at, count);
  }
  T* const sm_mine = sm.own + mine * Tile::kStride;
  put_rows<kWidth>(a.dk, a.kv_stride, a.add_dkv, dk, at, a, pack, turned, sm_mine);
  put_rows<kWidth>(a.dv, a.kv_stride, a.add_dkv, dv, at, a, pack, {}, sm_mine);
}

/// Blocks of keys and blocks of queries, which do not depend on one another, alternate: of each head, or in causal
/// attention, where tiles differ in work, of each tile of all heads. There are `blocks` of each kind, then those of the
/// rows after the sequences. Computes seven products of head width; one block for all rows of a head would need only
/// five, but so few blocks would take longer. Bound by multiply-adds and shared memory.
template <class T, int kWidth>
__global__ void __launch_bounds__(kWarp* kAttentionWarps, sizeof(T) == 4 ? (kWidth <= 64 ? 3 : 2) : 1)
    real_backward_kernel(gpu::Earlier earlier, PackedAttention<T> a, std::int64_t blocks, int pack, gpu::Drop<T> drop) {
  earlier.wait();
  if (blockIdx.x >= 2 * blocks) {
    AttentionPlace<T> at(a, blockIdx.x - blocks, RealTile<T, kWidth>::kWarpRows, LongestTile::first);
    at.zero_behind(a, a.add_dq ? nullptr : a.dq, a.stride);
    at.zero_behind(a, a.add_dkv ? nullptr : a.dk, a.kv_stride);
    return at.zero_behind(a, a.add_dkv ? nullptr : a.dv, a.kv_stride);
  }
  const std::int64_t unit = a.causal ? a.batch * a.heads : 1;
  const std::int64_t block = blockIdx.x / (2 * unit) * unit + blockIdx.x % unit;
  if (blockIdx.x / unit % 2 == 0)
    keys_gradient<T, kWidth>(a, block, pack, drop);
  else
    queries_gradient<T, kWidth>(a, block, pack, drop);
}

}  // namespace

template <class T>
void packed_attention_backward(const Stream& stream, const PackedAttention<T>& a, std::int64_t /*rows*/) {
  const gpu::Drop<T> drop{cpu::DropRate(a.dropout.rate)};
  visit_real_width(a.width, [&]<int kWidth>() {
    gpu::Grid grid = real_grid<T, kWidth>(stream, a, BackwardTiles<T, kWidth>::bytes, 7);
    const std::int64_t blocks = grid.grid.x - (a.all_rows > 0 ? gpu::kBlocksBehind : 0);
    grid.grid.x += blocks;
    gpu::launch(stream, grid, real_backward_kernel<T, kWidth>, a, blocks, access_of(a), drop);
  });
}

template void packed_attention_backward(const Stream&, const PackedAttention<float>&, std::int64_t rows);
LOCKSTEP_FP64(template void packed_attention_backward(const Stream&, const PackedAttention<double>&,
                                                      std::int64_t rows);)

}  // namespace lockstep::ops::cuda
