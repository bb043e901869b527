#pragma once
#include <cmath>

#include "lockstep/device/cuda_copy_async.hpp"
#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "ops/common/rotation_cuda.hpp"
#include "packed_attention_tiles_cuda.hpp"

/// Code that the passes of attention in float and double share: the mapping of rows to threads, tiles in shared memory,
/// and their products.
///
/// A warp has 4 kRows rows of a head: queries, or keys in the gradient of keys and values. The opposite side is
/// processed in tiles of 32 rows. Lane 8 g + t has the warp's rows g + 4 r, and the tile's rows t + 8 n of a product of
/// rows (kRows x 4 results), or 16 bytes of columns in each of kChunks packs of a weighted sum (up to kRows x 8
/// results). So an operand that a lane reads from shared memory is used 4 to 8 times. Addresses of a quarter of a warp
/// are in different banks. Each lane adds in ascending order.
namespace lockstep::ops::cuda {

inline constexpr int kTileRows = 32, kTileRowsOfLane = 4;

/// Sizes that follow from the type and the largest width of a head.
template <class T, int kWidth>
struct RealTile {
  static constexpr int kPack = gpu::pack_size<T>();
  /// Rows of a lane. Twice as many would read less shared memory per multiplication, but made an H100 wait for the last
  /// warps of the longest sequences, which ran almost alone, and for the instructions of longer loops.
  static constexpr int kRows = sizeof(T) * kWidth <= 512 ? 4 : 2;
  static constexpr int kWarpRows = 4 * kRows;
  static constexpr int kChunks = gpu::ceil_div(kWidth, 8 * kPack);
  static constexpr int kColumns = kChunks * kPack;  ///< of a lane
  /// Elements between rows in shared memory: an odd number of packs, so that consecutive rows start in different banks.
  static constexpr int kStride = (kWidth / kPack | 1) * kPack;
  /// The same for the weights of a warp, (kTileRows, kWarpRows): row g + 4 r is at g kRows + r.
  static constexpr int kWeightStride = kWarpRows + kPack;
};

/// The position of a thread, and its rows.
template <class T, int kWidth>
struct RealPlace : AttentionPlace<T> {
  using Tile = RealTile<T, kWidth>;
  int g, t;
  int end;  ///< after the last row of the block that exists
  __device__ RealPlace(const PackedAttention<T>& a, std::int64_t block, LongestTile longest)
      : AttentionPlace<T>(a, block, Tile::kWarpRows, longest), g(this->lane / 8), t(this->lane % 8), end(this->length) {
    if (!a.causal || longest == LongestTile::first) return;
    // The last queries, which see most keys, fill whole tiles. The first ones may not; rows below 0 do not exist.
    end = this->length - this->turn * this->rows;
    this->first = end - (end > this->rows ? this->rows : gpu::ceil_div(end, Tile::kWarpRows) * Tile::kWarpRows);
  }
  __device__ int row(int r) const { return this->mine() + g + 4 * r; }
  __device__ bool is_query(int row) const { return row >= this->first_query && row < end; }
  /// After the warp's last row that exists.
  __device__ int my_end() const {
    const int last = this->mine() + Tile::kWarpRows;
    return last < end ? last : end;
  }
  /// Whether the warp has a query.
  __device__ bool asks() const { return this->mine() < my_end() && my_end() > this->first_query; }
};

/// Copies rows first .. first + count - 1 of a head to shared memory, kCopied elements at once; rows below 0
/// and from `end` on become 0. All threads of the block must call it, and wait_for_copies() before a barrier.
template <int kWidth, int kCopied, class T>
__device__ void fetch_packs(T* sm_to, const T* from, std::int64_t stride, int first, int count, int end, int width,
                            const Turned<T>& turned) {
  constexpr int kStride = RealTile<T, kWidth>::kStride;
  constexpr int kSharers = 16;  // threads of a row
  // With a rotation, a thread loads packs in pairs: their first columns are half a head apart.
  const int apart = turned ? turned.half : 0;
  const int thread = static_cast<int>(threadIdx.y) * kWarp + static_cast<int>(threadIdx.x);
  const int rows = static_cast<int>(blockDim.y) * kWarp / kSharers;
  // Not unrolled, like the other loops: copies need no thread to wait, and long code waits for its instructions.
#pragma unroll 1
  for (int r = thread / kSharers; r < count; r += rows) {
    const T* const row = from + std::int64_t{first + r} * stride;
#pragma unroll 1
    for (int c = thread % kSharers * kCopied; c < kWidth - apart; c += kSharers * kCopied) {
      T* const sm_at = sm_to + r * kStride + c;
      const bool there = first + r >= 0 && first + r < end && c + apart < width;
      if (turned) {
        gpu::Pack<T, kCopied> lower = {}, upper = {};
        if (there) turned.template load<kCopied>(lower, upper, row, first + r, c);
        if (c < apart) gpu::store(sm_at, lower);
        gpu::store(sm_at + apart, upper);  // 0 beyond the last column
      } else if (!there) {
        gpu::store(sm_at, gpu::Pack<T, kCopied>{});
      } else if constexpr (kCopied * sizeof(T) >= 8) {
        gpu::copy_async<static_cast<int>(kCopied * sizeof(T))>(sm_at, row + c);
      } else {
        *sm_at = row[c];
      }
    }
  }
}
/// Calls f.template operator()<N>(): N elements are accessed at once.
template <class T, class F>
__device__ void visit_pack(int pack, const F& f) {
  constexpr int kPack = gpu::pack_size<T>();
  if (pack == kPack) return f.template operator()<kPack>();
  if constexpr (kPack > 2)
    if (pack == 2) return f.template operator()<2>();
  f.template operator()<1>();
}

/// s_rn = sum_c a_r,c b_n,c for the lane's rows of the warp and the first kPart of its rows of the tile, or 0.
template <int kWidth, int kPart, class T, int kRows>
__device__ void part_products(T (&s)[kRows][kTileRowsOfLane], const T* sm_a, const T* sm_b,
                              const RealPlace<T, kWidth>& at, int width) {
  using Tile = RealTile<T, kWidth>;
  constexpr int kPack = Tile::kPack;
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int n = 0; n < kTileRowsOfLane; ++n) s[r][n] = 0;
  const T *const row_a = sm_a + at.g * Tile::kStride, *const row_b = sm_b + at.t * Tile::kStride;
#pragma unroll 1
  for (int c = 0; c < width; c += kPack) {
    gpu::Pack<T, kPack> b[kPart];
#pragma unroll
    for (int n = 0; n < kPart; ++n) b[n] = gpu::load<kPack>(row_b + 8 * n * Tile::kStride + c);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const gpu::Pack<T, kPack> a = gpu::load<kPack>(row_a + 4 * r * Tile::kStride + c);
#pragma unroll
      for (int n = 0; n < kPart; ++n)
#pragma unroll
        for (int k = 0; k < kPack; ++k) s[r][n] += a.at[k] * b[n].at[k];
    }
  }
}
/// s = a b': rows of the warp by rows of the tile, of which `count` are used.
template <int kWidth, class T, int kRows>
__device__ void row_products(T (&s)[kRows][kTileRowsOfLane], const T* sm_a, const T* sm_b,
                             const RealPlace<T, kWidth>& at, int width, int count) {
  constexpr int kPart = kTileRowsOfLane / 2;
  count <= 8 * kPart ? part_products<kWidth, kPart>(s, sm_a, sm_b, at, width)
                     : part_products<kWidth, kTileRowsOfLane>(s, sm_a, sm_b, at, width);
}

/// Stores the lane's weights for add_weighted_rows(). The warp must have finished with the weights before.
template <int kWidth, class T, int kRows>
__device__ void put_weights(T* sm_weights, const T (&s)[kRows][kTileRowsOfLane], const RealPlace<T, kWidth>& at) {
  using Tile = RealTile<T, kWidth>;
#pragma unroll
  for (int n = 0; n < kTileRowsOfLane; ++n)
#pragma unroll
    for (int r = 0; r < kRows; r += Tile::kPack) {
      gpu::Pack<T, Tile::kPack> pack;
#pragma unroll
      for (int k = 0; k < Tile::kPack; ++k) pack.at[k] = s[r + k][n];
      gpu::store(sm_weights + (at.t + 8 * n) * Tile::kWeightStride + at.g * kRows + r, pack);
    }
}
/// sums_rc += sum_j weight_r,j b_j,c over the first `count` rows of the tile, rounded up to a multiple of 4.
template <int kWidth, class T, int kRows>
__device__ void add_weighted_rows(T (&sums)[kRows][RealTile<T, kWidth>::kColumns], const T* sm_weights, const T* sm_b,
                                  const RealPlace<T, kWidth>& at, int count) {
  using Tile = RealTile<T, kWidth>;
  constexpr int kPack = Tile::kPack, kUnroll = 4;
  const T *weights = sm_weights + at.g * kRows, *row_b = sm_b + at.t * kPack;
  for (int j = 0; j < count; j += kUnroll) {
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      gpu::Pack<T, kPack> w[kRows / kPack];
#pragma unroll
      for (int r = 0; r < kRows / kPack; ++r)
        w[r] = gpu::load<kPack>(weights + (j + i) * Tile::kWeightStride + r * kPack);
#pragma unroll
      for (int m = 0; m < Tile::kChunks; ++m) {
        const gpu::Pack<T, kPack> b = gpu::load<kPack>(row_b + (j + i) * Tile::kStride + 8 * m * kPack);
#pragma unroll
        for (int r = 0; r < kRows; ++r)
#pragma unroll
          for (int k = 0; k < kPack; ++k) sums[r][m * kPack + k] += w[r / kPack].at[r % kPack] * b.at[k];
      }
    }
  }
}

/// Reduces over the eight lanes that share rows; all of them get the result.
template <class T, class Op>
__device__ T over_rows(T x, Op op) {
#pragma unroll
  for (int distance = 1; distance < 8; distance *= 2) x = op(x, __shfl_xor_sync(gpu::kWholeWarp, x, distance));
  return x;
}

/// Stores the lane's sums in the rows of an array that exist, or adds them. They pass through the warp's rows of shared
/// memory, so that a short loop writes whole rows. Gradients of rows that were rotated when loaded (`turned`) are
/// rotated back there and always stored.
template <int kWidth, class T, int kRows>
__device__ void put_rows(T* to, std::int64_t stride, bool add, const T (&x)[kRows][RealTile<T, kWidth>::kColumns],
                         const RealPlace<T, kWidth>& at, const PackedAttention<T>& a, int pack, const Turned<T>& turned,
                         T* sm_mine) {
  using Tile = RealTile<T, kWidth>;
  constexpr int kPack = Tile::kPack;
  const int width = static_cast<int>(a.width);
  to = at.in(to, a, stride);
  __syncwarp();  // no lane reads sm_mine any more
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int m = 0; m < Tile::kChunks; ++m) {
      gpu::Pack<T, kPack> values;
#pragma unroll
      for (int k = 0; k < kPack; ++k) values.at[k] = x[r][m * kPack + k];
      const int c = (8 * m + at.t) * kPack;
      if (c < kWidth) gpu::store(sm_mine + (at.g + 4 * r) * Tile::kStride + c, values);
    }
  __syncwarp();
  visit_pack<T>(pack, [&]<int N>() {
    if (turned)
      return turned.template put_back<N>(to, stride, sm_mine, Tile::kStride, at.mine(), Tile::kWarpRows, at.end);
    constexpr int kPacks = kWidth / N;
    for (int e = at.lane; e < Tile::kWarpRows * kPacks; e += kWarp) {
      const int r = e / kPacks, c = e % kPacks * N, row = at.mine() + r;
      if (row < 0 || row >= at.end || c >= width) continue;
      gpu::Pack<T, N> values = gpu::load<N>(sm_mine + r * Tile::kStride + c);
      T* const place = to + std::int64_t{row} * stride + c;
      if (add) {
        const gpu::Pack<T, N> before = gpu::load<N>(place);
#pragma unroll
        for (int k = 0; k < N; ++k) values.at[k] += before.at[k];
      }
      gpu::store(place, values);
    }
  });
}

/// The elements that are accessed at once.
template <class T>
int access_of(const PackedAttention<T>& a) {
  const auto whole = [&]<int N>() {
    return a.width % N == 0 && a.stride % N == 0 && a.kv_stride % N == 0 &&
           (a.cos == nullptr || a.width / 2 % N == 0) &&
           gpu::aligned_for<N>(a.cos, a.sin, a.q, a.k, a.v, static_cast<const T*>(a.y), a.dy,
                               static_cast<const T*>(a.dq), static_cast<const T*>(a.dk), static_cast<const T*>(a.dv));
  };
  constexpr int kPack = gpu::pack_size<T>();
  return whole.template operator()<kPack>() ? kPack : whole.template operator()<2>() ? 2 : 1;
}

/// Calls f.template operator()<kWidth>().
template <class F>
void visit_real_width(std::int64_t width, const F& f) {
  width <= 32   ? f.template operator()<32>()
  : width <= 52 ? f.template operator()<52>()  // SASRec's 50
  : width <= 64 ? f.template operator()<64>()
                : f.template operator()<128>();
}

/// products: how many products of queries with keys, or of weights with values, the kernel computes.
template <class T, int kWidth>
gpu::Grid real_grid(const Stream& stream, const PackedAttention<T>& a, std::size_t (*shared_bytes)(int rows),
                    int products) {
  gpu::Grid grid = packed_grid(stream, a, RealTile<T, kWidth>::kWarpRows, shared_bytes);
  grid.flops = products * a.product_flops;
  return grid;
}

}  // namespace lockstep::ops::cuda
