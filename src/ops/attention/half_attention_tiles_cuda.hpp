#pragma once
#include <algorithm>

#include "lockstep/device/cuda_copy_async.hpp"
#include "lockstep/device/cuda_mma.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "ops/common/rotation_cuda.hpp"
#include "packed_attention_tiles_cuda.hpp"

/// Code that the passes of attention on tensor cores share: the mapping of rows to threads, tiles in shared memory,
/// their products, and the draws of dropout.
///
/// A block has 16 rows of a head for each of its warps: queries, or keys in the gradient of keys and values. The
/// opposite side is processed in steps of kStep rows, from row 0 on, so that the sums of a row do not depend on how the
/// host divides the work (HalfPlan). Products of halves are summed in f32 and stay in registers as 16 x 8 fragments
/// (cuda_mma.hpp): lane 4 g + t of a warp holds columns 8 n + 2 t and 8 n + 2 t + 1 of rows g and g + 8, for every n. A
/// fragment of weights, rounded to halves, is the left operand of the next product without a rearrangement. The row
/// reductions of the softmax run over four adjacent lanes.
///
/// Rows reach shared memory by asynchronous copies. A sequence that fits is copied at once. A longer one passes through
/// two tiles in turn: while the warps multiply with one, the other is copied. Each step is
///
///   copies of the next tile start; products with this tile; each thread waits for its own copies; barrier
///
/// so the barrier tells both that the next tile is there and that no warp reads this one any more. A thread rotates the
/// columns that it has copied itself between its wait and the barrier.
///
/// source   Dao 2023, arXiv:2307.08691
namespace lockstep::ops::cuda {

inline constexpr int kFragmentRows = 16;
inline constexpr int kStep = 32;  ///< rows of the opposite side, limited by registers
/// Rows of a tile if a sequence takes several: two steps between barriers where shared memory permits.
template <int kWidth>
inline constexpr int kTileRows = kWidth <= 64 ? 2 * kStep : kStep;
/// The longest sequences that one block takes as a whole, all of it in shared memory at once.
template <int kWidth>
inline constexpr int kWholeRows = kWidth <= 64 ? 96 : 64;
/// The most warps of a block with queries.
template <int kWidth>
inline constexpr int kQueryWarps = kWidth <= 64 ? 6 : 4;

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

/// How the host divides the work.
struct HalfPlan {
  int pack;     ///< elements of a copy to or from shared memory: 8, 2 or 1
  int warps;    ///< of a block
  int tile;     ///< rows of a tile
  int buffers;  ///< 1: the tile holds the longest sequence; or 2
  /// tile_rows, long_warps: for blocks that do not take a whole head.
  template <class T>
  HalfPlan(const PackedAttention<T>& a, int whole_rows, int tile_rows, int long_warps)
      : warps(long_warps), tile(tile_rows), buffers(2) {
    const auto whole = [&]<int N>() {
      return a.width % N == 0 && a.stride % N == 0 && a.kv_stride % N == 0 &&
             (a.cos == nullptr || a.width / 2 % N == 0) &&
             gpu::aligned_for<N>(a.cos, a.sin, a.q, a.k, a.v, static_cast<const T*>(a.y), a.dy,
                                 static_cast<const T*>(a.dq), static_cast<const T*>(a.dk), static_cast<const T*>(a.dv));
    };
    pack = whole.template operator()<8>() ? 8 : whole.template operator()<2>() ? 2 : 1;
    if (a.time > whole_rows) return;
    const int time = std::max(1, static_cast<int>(a.time));
    warps = gpu::ceil_div(time, kFragmentRows);
    tile = gpu::ceil_div(time, kStep) * kStep;
    buffers = 1;
  }
  /// Whether each block takes a whole head. Not if lengths differ: the longest one must not choose the kernel, because
  /// nvcc may round two instances of an expression differently.
  template <class T>
  bool whole(const PackedAttention<T>& a) const {
    return buffers == 1 && a.offsets == nullptr;
  }
  int rows() const { return warps * kFragmentRows; }
  /// Rows of a tile to copy: whole steps up to `end`.
  __device__ int rows_at(int row, int end) const {
    const int left = gpu::ceil_div(end - row, kStep) * kStep;
    return left < tile ? left : tile;
  }
  /// Blocks for all rows of all heads, and for the rows after the sequences.
  template <class T>
  gpu::Grid grid(const PackedAttention<T>& a, std::size_t shared_bytes) const {
    return {.grid = a.batch * a.heads * gpu::ceil_div(a.time, rows()) + (a.all_rows > 0 ? gpu::kBlocksBehind : 0),
            .block = {kWarp, warps},
            .shared_bytes = shared_bytes};
  }
};

/// Calls f(row, column) for the packs of N columns in the lower half of `count` rows: a thread gets the same ones in
/// every call.
template <int kWidth, int N, class F>
__device__ void for_own_packs(int count, const F& f) {
  constexpr int kPacks = kWidth / 2 / N;
  const int threads = static_cast<int>(blockDim.y) * kWarp;
  for (int e = static_cast<int>(threadIdx.y) * kWarp + static_cast<int>(threadIdx.x); e < count * kPacks; e += threads)
    f(e / kPacks, e % kPacks * N);
}
/// Calls f.template operator()<N>() with the plan's pack.
template <class F>
__device__ void visit_pack(int pack, const F& f) {
  pack == 8 ? f.template operator()<8>() : pack == 2 ? f.template operator()<2>() : f.template operator()<1>();
}

/// Locates a head's columns in an array and copies them to shared memory. All threads of the block must call both
/// functions.
template <class T, int kWidth>
struct HalfRows {
  const T* from;  ///< row 0 of the sequence
  std::int64_t stride;
  int length, width, pack;
  Turned<T> turned;  ///< how the columns are rotated, or empty
  __device__ HalfRows(const HalfPlace<T>& at, const PackedAttention<T>& a, const HalfPlan& plan, const T* x,
                      std::int64_t row_stride, const Turned<T>& turn = {})
      : from(at.in(x, a, row_stride)),
        stride(row_stride),
        length(at.length),
        width(static_cast<int>(a.width)),
        pack(plan.pack),
        turned(turn) {}

  /// Starts to copy rows first .. first + count - 1; rows and columns that do not exist become 0.
  __device__ void fetch(T* sm_to, int first, int count) const {
    visit_pack(pack, [&]<int N>() {
      // A thread copies packs in pairs: those that a rotation mixes are half a head apart.
      const int half = turned ? turned.half : kWidth / 2;
      for_own_packs<kWidth, N>(count, [&](int r, int c) {
        const T* const row = from + std::int64_t{first + r} * stride;
        T* const sm_row = sm_to + r * kHalfStride<kWidth>;
        const auto put = [&](int column) {
          if (first + r >= length || column >= width)
            *reinterpret_cast<gpu::Pack<T, N>*>(sm_row + column) = {};
          else if constexpr (N == 1)
            sm_row[column] = row[column];
          else
            gpu::copy_async<N * sizeof(T)>(sm_row + column, row + column);
        };
        put(c < half ? c : c + half);
        put(c + (c < half ? half : kWidth / 2));
      });
    });
  }
  /// Rotates what the thread itself has copied, also of the same rows of another array.
  __device__ void turn(T* sm_rows, int first, int count, T* sm_too = nullptr) const {
    if (!turned) return;
    visit_pack(pack, [&]<int N>() {
      for_own_packs<kWidth, N>(count, [&](int r, int c) {
        if (c >= turned.half || first + r >= length) return;
        const int at = r * kHalfStride<kWidth> + c;
        gpu::Pack<real_t<T>, N> lower[2], upper[2];
        turned.template load<N>(lower[0], upper[0], sm_rows + at - c, first + r, c);
        if (sm_too != nullptr) turned.template load<N>(lower[1], upper[1], sm_too + at - c, first + r, c);
        gpu::store(sm_rows + at, lower[0]);
        gpu::store(sm_rows + at + turned.half, upper[0]);
        if (sm_too == nullptr) return;
        gpu::store(sm_too + at, lower[1]);
        gpu::store(sm_too + at + turned.half, upper[1]);
      });
    });
  }
};

/// Shared memory of a block: kOwn arrays with its rows, tiles with two arrays of the opposite side, and the rest.
template <class T, int kWidth, int kOwn>
struct HalfMemory {
  T *own, *tiles;
  unsigned char* rest;
  int tile;  ///< elements of an array of a tile
  static std::size_t bytes(const HalfPlan& plan, std::size_t rest) {
    return static_cast<std::size_t>((kOwn * plan.rows() + plan.buffers * 2 * plan.tile) * kHalfStride<kWidth>) *
               sizeof(T) +
           rest;
  }
  __device__ HalfMemory(unsigned char* memory, int rows, const HalfPlan& plan)
      : own(reinterpret_cast<T*>(memory)),
        tiles(own + kOwn * rows * kHalfStride<kWidth>),
        rest(reinterpret_cast<unsigned char*>(tiles + plan.buffers * 2 * plan.tile * kHalfStride<kWidth>)),
        tile(plan.tile * kHalfStride<kWidth>) {}
  __device__ T* first(int buffer) const { return tiles + 2 * buffer * tile; }
  __device__ T* second(int buffer) const { return first(buffer) + tile; }
};

/// Calls work(tile, buffer) for the tiles from row `first` to `end`, while fetch(tile, buffer) copies the next one. The
/// first has been copied; turn(tile, buffer) runs after a thread's own copies. With kWhole there is only one tile. All
/// threads of the block must call it.
template <bool kWhole, class Fetch, class Turn, class Work>
__device__ void walk_tiles(const HalfPlan& plan, int first, int end, const Fetch& fetch, const Turn& turn,
                           const Work& work) {
  for (int tile = first, buffer = 0;; buffer ^= 1) {
    const int next = tile + plan.tile;
    if (!kWhole && next < end) fetch(next, buffer ^ 1);
    work(tile, buffer);
    if (kWhole || next >= end) return;
    gpu::wait_for_copies();
    turn(next, buffer ^ 1);
    __syncthreads();
    tile = next;
  }
}

/// Whether a head has no columns from c on. Heads of at most 64 columns multiply zeros instead.
template <int kWidth>
__device__ bool ends_before(int c, int width) {
  return kWidth > 64 && c >= width;
}

/// 16 rows of shared memory as left operands, 16 columns each.
template <int kWidth>
struct HalfFragments {
  std::uint32_t of[kWidth / 16][4];
  template <class T>
  __device__ HalfFragments(const T* sm_rows, int lane) {
#pragma unroll
    for (int c = 0; c < kWidth; c += 16)
      gpu::load_matrices(of[c / 16], sm_rows + lane % 16 * kHalfStride<kWidth> + lane / 16 * 8 + c);
  }
};

/// s = a b': 16 rows a, kColumns rows of sm_b, both with `width` columns.
template <int kWidth, int kColumns, class T>
__device__ void row_products(float (&s)[kColumns / 8][4], const HalfFragments<kWidth>& a, const T* sm_b, int lane,
                             int width) {
  constexpr int kStride = kHalfStride<kWidth>;
#pragma unroll
  for (int n = 0; n < kColumns / 8; ++n) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
  const T* const row_b = sm_b + (lane % 8 + lane / 16 * 8) * kStride + lane / 8 % 2 * 8;
#pragma unroll
  for (int c = 0; c < kWidth; c += 16) {
    if (ends_before<kWidth>(c, width)) break;
#pragma unroll
    for (int m = 0; m < kColumns / 16; ++m) {
      std::uint32_t b[4];
      gpu::load_matrices(b, row_b + 16 * m * kStride + c);
      gpu::multiply_add<T>(s[2 * m], a.of[c / 16], b[0], b[1]);
      gpu::multiply_add<T>(s[2 * m + 1], a.of[c / 16], b[2], b[3]);
    }
  }
}

/// Rounds 16 x 16 weights to halves.
template <class T>
__device__ void round_weights(std::uint32_t (&w)[4], const float (&left)[4], const float (&right)[4]) {
  w[0] = gpu::pack_halves<T>(left[0], left[1]);
  w[1] = gpu::pack_halves<T>(left[2], left[3]);
  w[2] = gpu::pack_halves<T>(right[0], right[1]);
  w[3] = gpu::pack_halves<T>(right[2], right[3]);
}
/// sums += w b, where b is 16 rows of sm_b.
template <int kWidth, class T>
__device__ void add_weighted_rows(float (&sums)[kWidth / 8][4], const std::uint32_t (&w)[4], const T* sm_b, int lane,
                                  int width) {
  const T* const row_b = sm_b + lane % 16 * kHalfStride<kWidth> + lane / 16 * 8;
#pragma unroll
  for (int c = 0; c < kWidth; c += 16) {
    if (ends_before<kWidth>(c, width)) break;
    std::uint32_t b[4];
    gpu::load_transposed(b, row_b + c);
    gpu::multiply_add<T>(sums[c / 8], w, b[0], b[1]);
    gpu::multiply_add<T>(sums[c / 8 + 1], w, b[2], b[3]);
  }
}

/// Reduces over the four lanes that share a row; all four get the result.
template <class Op>
__device__ float over_row(float x, Op op) {
  x = op(x, __shfl_xor_sync(gpu::kWholeWarp, x, 1));
  return op(x, __shfl_xor_sync(gpu::kWholeWarp, x, 2));
}

/// Stores or adds the warp's fragments, times a factor for each of the lane's rows, to the rows of an array that exist.
/// Stores pass through sm_mine, 16 rows of shared memory that no other warp uses, so that they store whole packs.
/// Gradients of columns that were rotated when loaded (`turned`) are rotated back there and always stored.
template <int kWidth, class T>
__device__ void put_rows(T* to, std::int64_t stride, bool add, const float (&x)[kWidth / 8][4],
                         const float (&factor)[2], const HalfPlace<T>& at, const PackedAttention<T>& a,
                         const HalfPlan& plan, const Turned<T>& turned, T* sm_mine) {
  const int width = static_cast<int>(a.width);
  to = at.in(to, a, stride);
  const bool added = add && !turned;
  __syncwarp();  // no lane reads sm_mine any more
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    T* const row = to + std::int64_t{at.row(r)} * stride + 2 * at.t;
    T* const sm_row = sm_mine + (at.g + 8 * r) * kHalfStride<kWidth> + 2 * at.t;
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n) {
      gpu::Pack<float, 2> pair = {{x[n][2 * r] * factor[r], x[n][2 * r + 1] * factor[r]}};
      const int left = at.row(r) < at.length ? width - 8 * n - 2 * at.t : 0;  // columns from the lane's first one on
      if (!added) {
        gpu::store<T, 2>(sm_row + 8 * n, pair);
      } else if (left > 0 && plan.pack > 1) {
        const gpu::Pack<float, 2> before = gpu::load<2>(row + 8 * n);
        pair.at[0] += before.at[0];
        pair.at[1] += before.at[1];
        gpu::store<T, 2>(row + 8 * n, pair);
      } else {
        if (left > 0) gpu::store(row + 8 * n, pair.at[0], true);
        if (left > 1) gpu::store(row + 8 * n + 1, pair.at[1], true);
      }
    }
  }
  if (added) return;
  __syncwarp();
  visit_pack(plan.pack, [&]<int N>() {
    if (turned)
      return turned.template put_back<N>(to, stride, sm_mine, kHalfStride<kWidth>, at.mine(), kFragmentRows, at.length);
    constexpr int kPacks = kWidth / N;
    for (int e = at.lane; e < kFragmentRows * kPacks; e += kWarp) {
      const int r = e / kPacks, c = e % kPacks * N;
      if (at.mine() + r >= at.length) break;
      if (c < width)
        *reinterpret_cast<gpu::Pack<T, N>*>(to + std::int64_t{at.mine() + r} * stride + c) =
            *reinterpret_cast<const gpu::Pack<T, N>*>(sm_mine + r * kHalfStride<kWidth> + c);
    }
  });
}

/// The plan of kernels whose blocks have queries. Blocks of long sequences share them evenly.
template <int kWidth, class T>
HalfPlan plan_for_queries(const PackedAttention<T>& a) {
  const std::int64_t fragments = gpu::ceil_div(std::max<std::int64_t>(1, a.time), kFragmentRows);
  const std::int64_t blocks = gpu::ceil_div(fragments, kQueryWarps<kWidth>);
  return HalfPlan(a, kWholeRows<kWidth>, kTileRows<kWidth>, static_cast<int>(gpu::ceil_div(fragments, blocks)));
}

/// Calls f.template operator()<kWidth>().
template <class F>
void visit_half_width(std::int64_t width, const F& f) {
  width <= 32 ? f.template operator()<32>() : width <= 64 ? f.template operator()<64>() : f.template operator()<128>();
}

}  // namespace lockstep::ops::cuda
