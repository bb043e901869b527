#include <limits>

#include "real_attention_tiles_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

/// Shared memory of a block.
template <class T, int kWidth>
struct ForwardTiles {
  using Tile = RealTile<T, kWidth>;
  T *q, *k, *v, *weights;
  std::uint32_t* keeps;
  static std::size_t bytes(int rows) {
    const int weights = rows / Tile::kWarpRows * kTileRows * Tile::kWeightStride;
    return static_cast<std::size_t>((rows + 2 * kTileRows) * Tile::kStride + weights) * sizeof(T) +
           static_cast<std::size_t>(rows * WeightKeeps<T>::kWords) * sizeof(std::uint32_t);
  }
  __device__ ForwardTiles(unsigned char* memory, int rows)
      : q(reinterpret_cast<T*>(memory)),
        k(q + rows * Tile::kStride),
        v(k + kTileRows * Tile::kStride),
        weights(v + kTileRows * Tile::kStride),
        keeps(reinterpret_cast<std::uint32_t*>(weights + rows / Tile::kWarpRows * kTileRows * Tile::kWeightStride)) {}
};

/// Warps own rows of queries; keys and values are processed in tiles. Scores, softmax and weighted values are computed
/// in one pass that rescales its sums when the largest score grows; no (T, T) array exists. Sums over keys run in
/// ascending order of tiles. Bound by multiply-adds and shared memory.
/// source   Dao et al. 2022, arXiv:2205.14135
template <class T, int kWidth>
__global__ void __launch_bounds__(kWarp* kAttentionWarps, sizeof(T) == 4 ? (kWidth <= 64 ? 4 : 3) : 1)
    real_forward_kernel(gpu::Earlier earlier, PackedAttention<T> a, int pack, gpu::Drop<T> drop) {
  earlier.wait();
  using Tile = RealTile<T, kWidth>;
  constexpr int kRows = Tile::kRows;
  constexpr T kNone = -std::numeric_limits<T>::infinity();
  const RealPlace<T, kWidth> at(a, blockIdx.x, LongestTile::last);
  if (at.behind >= 0) return at.zero_behind(a, a.y, a.heads * a.width);
  if (at.first >= at.end) return;
  const int width = static_cast<int>(a.width), mine = at.warp * Tile::kWarpRows;
  const ForwardTiles<T, kWidth> sm(sm_bytes, at.rows);
  T* const sm_weights = sm.weights + at.warp * kTileRows * Tile::kWeightStride;
  WeightKeeps<T> keeps(a, at, drop, sm.keeps + mine * WeightKeeps<T>::kWords);
  const Turned<T> turned = {a.cos, a.sin, width / 2};
  const auto fetch = [&](T* to, const T* from, std::int64_t stride, int first, int count, int end,
                         const Turned<T>& turn) {
    visit_pack<T>(pack, [&]<int N>() {
      fetch_packs<kWidth, N>(to, at.in(from, a, stride), stride, first, count, end, width, turn);
    });
  };
  fetch(sm.q, a.q, a.stride, at.first, at.rows, at.end, turned);

  const T scale = a.scale * kLog2E<T>, fill = a.fill * kLog2E<T>;
  const bool filled = a.fill > kNone;
  // The number of keys that a row has scores for.
  const auto scored = [&](int row) { return a.causal && !filled ? row + 1 : at.length; };
  T y[kRows][Tile::kColumns] = {}, largest[kRows], sum[kRows] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) largest[r] = kNone;
  const int end = at.end > at.first_query ? scored(at.end - 1) : 0, my_end = at.asks() ? scored(at.my_end() - 1) : 0;
  for (int tile = 0; tile < end; tile += kTileRows) {
    __syncthreads();  // all warps have finished with the previous tile
    fetch(sm.k, a.k, a.kv_stride, tile, kTileRows, at.length, turned);
    fetch(sm.v, a.v, a.kv_stride, tile, kTileRows, at.length, {});
    gpu::wait_for_copies();
    __syncthreads();
    const int count = my_end - tile;
    if (count <= 0) continue;
    if (keeps && tile % gpu::kGroupDraws == 0) keeps.draw(at.mine(), Tile::kWarpRows, tile, at.lane);
    T s[kRows][kTileRowsOfLane];
    row_products<kWidth>(s, sm.q + mine * Tile::kStride, sm.k, at, width, count);
    __syncwarp();  // the draws are there, and the previous weights are no longer in use
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = at.row(r);
      // Keys of the tile that the query sees, and keys that it has a score for.
      const int there = at.is_query(row) ? at.length - tile : 0, seen = a.causal ? row + 1 - tile : there;
      T most = largest[r];
#pragma unroll
      for (int n = 0; n < kTileRowsOfLane; ++n) {
        const int j = at.t + 8 * n;
        s[r][n] = j >= there ? kNone : j < seen ? s[r][n] * scale : fill;
        most = gpu::Max()(s[r][n], most);
      }
      most = over_rows(most, gpu::Max());
      const T base = most == kNone ? T{0} : most, shrink = std::exp2(largest[r] - base);
      largest[r] = most;
      sum[r] *= shrink;
#pragma unroll
      for (int c = 0; c < Tile::kColumns; ++c) y[r][c] *= shrink;
      const std::uint32_t bits = keeps ? keeps.from(at.g + 4 * r, row, tile) : 0;
#pragma unroll
      for (int n = 0; n < kTileRowsOfLane; ++n) {
        T& x = s[r][n];
        x = std::exp2(x - base);
        sum[r] += x;
        if (keeps) x *= keeps.kept(bits, keeps.in_bits(at.t + 8 * n));
      }
    }
    put_weights<kWidth>(sm_weights, s, at);
    __syncwarp();
    add_weighted_rows<kWidth>(y, sm_weights, sm.v, at, count < kTileRows ? count : kTileRows);
  }

#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const T total = over_rows(sum[r], gpu::Add()), factor = total == 0 ? T{0} : 1 / total;  // 0: the row is only a key
    const int row = at.row(r);
#pragma unroll
    for (int c = 0; c < Tile::kColumns; ++c) y[r][c] *= factor;
    if (a.lse != nullptr && at.t == 0 && at.is_query(row))
      a.lse[at.in_lse(a, row)] = (largest[r] + std::log2(total)) * kLn2<T>;
  }
  put_rows<kWidth>(a.y, a.heads * a.width, false, y, at, a, pack, Turned<T>{}, sm.q + mine * Tile::kStride);
}

}  // namespace

template <class T>
void packed_attention_forward(const Stream& stream, const PackedAttention<T>& a) {
  const gpu::Drop<T> drop{cpu::DropRate(a.dropout.rate)};
  visit_real_width(a.width, [&]<int kWidth>() {
    gpu::launch(stream, real_grid<T, kWidth>(stream, a, ForwardTiles<T, kWidth>::bytes, 2),
                real_forward_kernel<T, kWidth>, a, access_of(a), drop);
  });
}

template void packed_attention_forward(const Stream&, const PackedAttention<float>&);
LOCKSTEP_FP64(template void packed_attention_forward(const Stream&, const PackedAttention<double>&);)

}  // namespace lockstep::ops::cuda
