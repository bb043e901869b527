#pragma once
#include <algorithm>

#include "lockstep/device/cuda_mma.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "packed_attention_tiles_cuda.hpp"
#include "rope_cuda.hpp"

/// Code that the passes of attention on tensor cores share: the mapping of rows to threads, tiles in shared memory,
/// their products, and the draws of dropout.
///
/// A block has 16 rows of a head for each of its warps: queries, or keys in the gradient of keys and values. The
/// opposite side is processed in tiles. Products of halves are summed in f32 and stay in registers as 16 x 8 fragments
/// (cuda_mma.hpp): lane 4 g + t of a warp holds columns 8 n + 2 t and 8 n + 2 t + 1 of rows g and g + 8, for every n. A
/// fragment of weights, rounded to halves, is the left operand of the next product without a rearrangement. The row
/// reductions of the softmax run over four adjacent lanes.
///
/// source   Dao 2023, arXiv:2307.08691
namespace lockstep::ops::cuda {

inline constexpr int kFragmentRows = 16;

/// Stride of rows in shared memory: an odd number of 16-byte units, so that the eight rows of a matrix load from
/// different banks.
template <int kWidth>
inline constexpr int kHalfStride = kWidth + 8;

/// The position of a thread, and the rows of its fragments.
template <class T>
struct HalfPlace : AttentionPlace<T> {
  int g, t;

  __device__ explicit HalfPlace(const PackedAttention<T>& a, LongestTile longest = LongestTile::last)
      : AttentionPlace<T>(a, blockIdx.x, kFragmentRows, longest), g(this->lane / 4), t(this->lane % 4) {}
  /// The lane's rows, r = 0, 1.
  __device__ int row(int r) const { return this->mine() + g + 8 * r; }
};

template <int N, class T>
__device__ void fetch_packs(T* sm_to, int to_stride, int padded_width, const T* from, std::int64_t stride, int first,
                            int count, int length, int width, const Turned<T>& turned) {
  using Pack = gpu::Pack<T, N>;
  // With a rotation, a thread loads packs in pairs: their first columns are half a head apart.
  const int apart = turned ? turned.half : 0;
  const int packs = (padded_width - apart) / N, threads = static_cast<int>(blockDim.y) * kWarp;
  for (int e = static_cast<int>(threadIdx.y) * kWarp + static_cast<int>(threadIdx.x); e < count * packs; e += threads) {
    const int r = e / packs, c = e % packs * N;
    const T* const row = from + std::int64_t{first + r} * stride;
    T* const sm_row = sm_to + r * to_stride + c;
    const bool there = first + r < length && c + apart < width;
    if (turned) {
      gpu::Pack<real_t<T>, N> lower = {}, upper = {};
      if (there) turned.template load<N>(lower, upper, row, first + r, c);
      if (c < apart) gpu::store(sm_row, lower);
      gpu::store(sm_row + apart, upper);  // 0 beyond the last column
      continue;
    }
    *reinterpret_cast<Pack*>(sm_row) = there ? *reinterpret_cast<const Pack*>(row + c) : Pack{};
  }
}
/// Copies rows first .. first + count - 1 of a head to shared memory, `pack` elements at once; rows that do not exist
/// become 0. All threads of the block must call it.
template <int kWidth, class T>
__device__ void fetch_rows(T* sm_to, const T* from, std::int64_t stride, int first, int count, int length, int width,
                           int pack, const Turned<T>& turned = {}) {
  const auto with = [&]<int N>() {
    fetch_packs<N>(sm_to, kHalfStride<kWidth>, kWidth, from, stride, first, count, length, width, turned);
  };
  pack == 8   ? with.template operator()<8>()
  : pack == 4 ? with.template operator()<4>()
  : pack == 2 ? with.template operator()<2>()
              : with.template operator()<1>();
}

/// s = a b': 16 rows of sm_a, kColumns rows of sm_b, both with `width` columns.
template <int kWidth, int kColumns, class T>
__device__ void row_products(float (&s)[kColumns / 8][4], const T* sm_a, const T* sm_b, int lane, int width) {
  constexpr int kStride = kHalfStride<kWidth>;
#pragma unroll
  for (int n = 0; n < kColumns / 8; ++n) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
  const T* const row_a = sm_a + lane % 16 * kStride + lane / 16 * 8;
  const T* const row_b = sm_b + (lane % 8 + lane / 16 * 8) * kStride + lane / 8 % 2 * 8;
#pragma unroll
  for (int c = 0; c < kWidth; c += 16) {
    if (c >= width) break;
    std::uint32_t a[4];
    gpu::load_matrices(a, row_a + c);
#pragma unroll
    for (int m = 0; m < kColumns / 16; ++m) {
      std::uint32_t b[4];
      gpu::load_matrices(b, row_b + 16 * m * kStride + c);
      gpu::multiply_add<T>(s[2 * m], a, b[0], b[1]);
      gpu::multiply_add<T>(s[2 * m + 1], a, b[2], b[3]);
    }
  }
}

/// sums += p b. The fragments p are rounded to halves; b is kColumns rows of sm_b.
template <int kWidth, int kColumns, class T>
__device__ void add_weighted_rows(float (&sums)[kWidth / 8][4], const float (&p)[kColumns / 8][4], const T* sm_b,
                                  int lane, int width) {
  constexpr int kStride = kHalfStride<kWidth>;
  const T* const row_b = sm_b + lane % 16 * kStride + lane / 16 * 8;
#pragma unroll
  for (int m = 0; m < kColumns / 16; ++m) {
    const std::uint32_t a[4] = {
        gpu::pack_halves<T>(p[2 * m][0], p[2 * m][1]), gpu::pack_halves<T>(p[2 * m][2], p[2 * m][3]),
        gpu::pack_halves<T>(p[2 * m + 1][0], p[2 * m + 1][1]), gpu::pack_halves<T>(p[2 * m + 1][2], p[2 * m + 1][3])};
#pragma unroll
    for (int c = 0; c < kWidth; c += 16) {
      if (c >= width) break;
      std::uint32_t b[4];
      gpu::load_transposed(b, row_b + 16 * m * kStride + c);
      gpu::multiply_add<T>(sums[c / 8], a, b[0], b[1]);
      gpu::multiply_add<T>(sums[c / 8 + 1], a, b[2], b[3]);
    }
  }
}

/// Reduces over the four lanes that share a row; all four get the result.
template <class Op>
__device__ float over_row(float x, Op op) {
  x = op(x, __shfl_xor_sync(gpu::kWholeWarp, x, 1));
  return op(x, __shfl_xor_sync(gpu::kWholeWarp, x, 2));
}

/// Stores the warp's fragments, times a factor for each of the lane's rows, to the rows of an array that exist.
template <int kWidth, class T>
__device__ void store_rows(T* to, const float (&x)[kWidth / 8][4], const float (&factor)[2], const HalfPlace<T>& at,
                           std::int64_t stride, int width, bool accumulate, bool in_pairs) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (at.row(r) >= at.length) continue;
    T* const row = to + std::int64_t{at.row(r)} * stride + 2 * at.t;
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n) {        // mutant-equivalent: the loop ends at the last column
      const int left = width - 8 * n - 2 * at.t;  // columns from the lane's first column on
      if (left <= 0) break;
      gpu::Pack<float, 2> pair = {{x[n][2 * r] * factor[r], x[n][2 * r + 1] * factor[r]}};
      if (in_pairs) {
        if (accumulate) {
          const gpu::Pack<float, 2> before = gpu::load<2>(row + 8 * n);
          pair.at[0] += before.at[0];
          pair.at[1] += before.at[1];
        }
        gpu::store<T, 2>(row + 8 * n, pair);
      } else {
        gpu::store(row + 8 * n, pair.at[0], accumulate);
        if (left > 1) gpu::store(row + 8 * n + 1, pair.at[1], accumulate);
      }
    }
  }
}

/// How rows are accessed: elements per load, and whether pairs can be stored.
struct HalfAccess {
  int pack;
  bool pairs;
  template <class T>
  explicit HalfAccess(const PackedAttention<T>& a) : pack(1), pairs(false) {
    const auto whole = [&]<int N>() {
      return a.width % N == 0 && a.stride % N == 0 && a.kv_stride % N == 0 &&
             (a.cos == nullptr || a.width / 2 % N == 0) &&
             gpu::aligned_for<N>(a.cos, a.sin, a.q, a.k, a.v, static_cast<const T*>(a.y), a.dy,
                                 static_cast<const T*>(a.dq), static_cast<const T*>(a.dk), static_cast<const T*>(a.dv));
    };
    pairs = whole.template operator()<2>();
    pack = whole.template operator()<8>() ? 8 : whole.template operator()<4>() ? 4 : pairs ? 2 : 1;
  }
};

/// Calls f.template operator()<kWidth>().
template <class F>
void visit_half_width(std::int64_t width, const F& f) {
  width <= 32 ? f.template operator()<32>() : width <= 64 ? f.template operator()<64>() : f.template operator()<128>();
}

}  // namespace lockstep::ops::cuda
