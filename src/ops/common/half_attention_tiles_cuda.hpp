#pragma once
#include <algorithm>

#include "half_attention_cuda.hpp"
#include "lockstep/device/cuda_mma.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "philox_cuda.hpp"
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

using gpu::kWarp;

inline constexpr int kHalfWarps = 4;
inline constexpr int kFragmentRows = 16;
inline constexpr float kLog2E = 1.44269504088896340736f, kLn2 = 0.69314718055994530942f;

/// Stride of rows in shared memory: an odd number of 16-byte units, so that the eight rows of a matrix load from
/// different banks.
template <int kWidth>
inline constexpr int kHalfStride = kWidth + 8;

/// The position of a thread: a head of a sequence and rows of it. Rows are numbered within the sequence.
template <class T>
struct HalfPlace {
  int warp, lane, g, t;
  int head, rows;                  ///< head, and the number of rows of the block
  std::int64_t sequence, base;     ///< base: the sequence's first row in all arrays
  int length, first_query, first;  ///< of the sequence; first: first row of the block

  __device__ explicit HalfPlace(const HalfAttention<T>& a)
      : warp(static_cast<int>(threadIdx.y)),
        lane(static_cast<int>(threadIdx.x)),
        g(lane / 4),
        t(lane % 4),
        rows(static_cast<int>(blockDim.y) * kFragmentRows) {
    const std::int64_t blocks = gpu::ceil_div(a.time, rows), all = blockIdx.x / blocks;
    sequence = all / a.heads;
    head = static_cast<int>(all % a.heads);
    // mutant-equivalent: another thread or block does the same work
    first = static_cast<int>(blockIdx.x % blocks) * rows;
    base = a.offsets != nullptr ? a.offsets[sequence] : sequence * a.time;
    length = static_cast<int>(a.offsets != nullptr ? a.offsets[sequence + 1] - base : a.time);
    first_query = a.first_query != nullptr ? static_cast<int>(a.first_query[sequence]) : 0;
  }
  /// The warp's first row.
  __device__ int mine() const { return first + warp * kFragmentRows; }
  /// The lane's rows, r = 0, 1.
  __device__ int row(int r) const { return mine() + g + 8 * r; }
  __device__ bool is_query(int row) const { return row >= first_query && row < length; }
  /// The first column of the head in the sequence's first row, in an array with rows `stride` apart.
  template <class P>
  __device__ P* in(P* x, const HalfAttention<T>& a, std::int64_t stride) const {
    return x + base * stride + head * a.width;
  }
  /// The index of a row in lse and in arrays with the same layout.
  __device__ std::int64_t in_lse(const HalfAttention<T>& a, int row) const {
    return base * a.heads + (a.causal ? row * a.heads + head : head * a.time + row);
  }
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

/// Which weights of a head dropout keeps, as bits in shared memory: four words for the 128 draws of a query's group.
/// Word w holds draws 32 w .. 32 w + 31 in the order of the Philox blocks (philox_cuda.hpp): bit b is from the lower
/// half of block b, bit 16 + b from its upper half.
template <class T>
class HalfKeeps {
 public:
  static constexpr int kWords = 4, kDraws = gpu::kGroupDraws;
  __device__ HalfKeeps(const HalfAttention<T>& a, const HalfPlace<T>& at, gpu::Drop<float> drop, std::uint32_t* sm_bits)
      : drop_(drop),
        group_rows_(static_cast<int>(a.draws.group_rows)),
        row_groups_(a.draws.row_groups),
        philox_(site_of(a, at).draws(drop.threshold > 0 ? a.samples[at.sequence] : 0)),
        first_group_(a.causal ? 0 : static_cast<std::uint64_t>(at.head) * a.draws.head_groups),
        sm_bits_(sm_bits) {}

  __device__ explicit operator bool() const { return drop_.threshold > 0; }
  /// Draws for queries first .. first + count - 1 and the 128 keys that include `key`. One warp does the work.
  __device__ void draw(int first, int count, int key, int lane) {
    for (int i = 0; i < count; i += 2) draw_pair(first, i, key, lane);
  }
  /// The same, shared among all warps of the block.
  __device__ void draw_all(int first, int count, int key, const HalfPlace<T>& at) {
    const int warps = static_cast<int>(blockDim.y);
    for (int i = 2 * at.warp; i < count; i += 2 * warps) draw_pair(first, i, key, at.lane);
  }
  /// The bits of the i-th query of the last draw, from `key` (a multiple of 8) on. Bit in_eight(k) belongs to key + k.
  __device__ std::uint32_t from(int i, int query, int key) const {
    const int draw = first_draw(query) + key % kDraws;
    return sm_bits_[i * kWords + draw / 32] >> (draw % 32 / 4);
  }
  /// For k < 8, or k < 16 if key is a multiple of 16.
  __device__ static int in_eight(int k) { return k / 4 + k % 4 / 2 * 8 + k % 2 * 16; }
  /// The dropout factor of a weight.
  __device__ float kept(std::uint32_t bits, int which) const { return bits >> which & 1u ? drop_.scale : 0.0f; }

 private:
  /// Draws for queries first + i and first + i + 1, one in each half of the warp.
  __device__ void draw_pair(int first, int i, int key, int lane) {
    const int half = lane / 16;
    const std::uint64_t group = first_group_ +
                                static_cast<std::uint64_t>((first + i + half) / group_rows_) * row_groups_ +
                                static_cast<std::uint64_t>(key / kDraws);
    const auto words = philox_.block(ops::cpu::kGroupBlocks * group + static_cast<std::uint64_t>(lane % 16));
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      const unsigned even = __ballot_sync(gpu::kWholeWarp, (words[w] & 0xffffu) >= drop_.threshold);
      const unsigned odd = __ballot_sync(gpu::kWholeWarp, (words[w] >> 16) >= drop_.threshold);
      if (lane % 16 == w)
        sm_bits_[(i + half) * kWords + w] = half == 0 ? (even & 0xffffu) | odd << 16 : even >> 16 | (odd & 0xffff0000u);
    }
  }
  /// The index of the query's first draw in its group, which short rows share.
  __device__ int first_draw(int query) const { return query % group_rows_ * (kDraws / group_rows_); }
  __device__ static Dropout site_of(const HalfAttention<T>& a, const HalfPlace<T>& at) {
    Dropout d = a.dropout;
    if (a.causal) d.site.id += static_cast<std::uint32_t>(at.head);
    return d;
  }
  gpu::Drop<float> drop_;
  int group_rows_;
  std::uint64_t row_groups_;
  Philox philox_;
  std::uint64_t first_group_;
  std::uint32_t* sm_bits_;
};

/// How rows are accessed: elements per load, and whether pairs can be stored.
struct HalfAccess {
  int pack;
  bool pairs;
  template <class T>
  explicit HalfAccess(const HalfAttention<T>& a) : pack(1), pairs(false) {
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

/// Blocks for all rows of all heads.
template <class T>
gpu::Grid half_grid(const HalfAttention<T>& a, std::size_t (*shared_bytes)(int rows)) {
  const auto warps = static_cast<int>(std::clamp<std::int64_t>(gpu::ceil_div(a.time, kFragmentRows), 1, kHalfWarps));
  const int rows = warps * kFragmentRows;
  return {.grid = a.batch * a.heads * gpu::ceil_div(a.time, rows),
          .block = {kWarp, warps},
          .shared_bytes = shared_bytes(rows)};
}

}  // namespace lockstep::ops::cuda
