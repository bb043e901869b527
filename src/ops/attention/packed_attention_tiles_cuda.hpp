#pragma once
#include <algorithm>

#include "lockstep/device/cuda_fast_math.hpp"
#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_launch.hpp"
#include "ops/common/philox_cuda.hpp"
#include "ops/common/rows_behind_cuda.hpp"
#include "packed_attention_cuda.hpp"

/// Code that attention of halves and of float and double share: the mapping of blocks to rows, and the draws of
/// dropout.
namespace lockstep::ops::cuda {

using gpu::kLn2;
using gpu::kLog2E;
using gpu::kWarp;

inline constexpr int kAttentionWarps = 4;

/// Which rows of a causal sequence have the most work: the last queries, which see most keys, or the first keys.
enum class LongestTile : std::uint8_t { first, last };

/// The position of a thread: a head of a sequence and rows of it. Rows are numbered within the sequence. Blocks of a
/// causal launch are ordered by their work, the longest first, so that the multiprocessors finish together.
template <class T>
struct AttentionPlace {
  int warp, lane;
  int head, rows, warp_rows;       ///< head, and the number of rows of the block and of a warp
  std::int64_t sequence, base;     ///< base: the sequence's first row in all arrays
  int length, first_query, first;  ///< of the sequence; first: first row of the block
  int turn;                        ///< the number of tiles of the sequence that have more work
  std::int64_t behind;             ///< not negative: the index of the block among those of the rows after the sequences

  /// block: its index among those with the same work
  __device__ AttentionPlace(const PackedAttention<T>& a, std::int64_t block, int rows_of_warp, LongestTile longest)
      : warp(static_cast<int>(threadIdx.y)),
        lane(static_cast<int>(threadIdx.x)),
        rows(static_cast<int>(blockDim.y) * rows_of_warp),
        warp_rows(rows_of_warp) {
    // 32 bits suffice for the index of a block; divisions of 64 bits would take a visible part of a short head's time.
    const auto blocks = static_cast<unsigned>(gpu::ceil_div(static_cast<int>(a.time), rows)),
               all_heads = static_cast<unsigned>(a.batch * a.heads), index = static_cast<unsigned>(block),
               heads = static_cast<unsigned>(a.heads);
    behind = block - std::int64_t{blocks} * all_heads;
    // Blocks of a head are neighbours unless they differ in work, so that they find its rows in the L2 cache.
    const unsigned all = a.causal ? index % all_heads : index / blocks;
    turn = static_cast<int>(a.causal ? index / all_heads : index % blocks);
    sequence = all / heads;
    head = static_cast<int>(all % heads);
    first = (a.causal && longest == LongestTile::last ? static_cast<int>(blocks) - 1 - turn : turn) * rows;
    base = a.offsets != nullptr ? a.offsets[sequence] : sequence * a.time;
    length = static_cast<int>(a.offsets != nullptr ? a.offsets[sequence + 1] - base : a.time);
    first_query = a.first_query != nullptr ? static_cast<int>(a.first_query[sequence]) : 0;
  }
  /// The warp's first row.
  __device__ int mine() const { return first + warp * warp_rows; }
  __device__ bool is_query(int row) const { return row >= first_query && row < length; }
  /// In a block of the rows after the sequences, sets these rows to 0.
  __device__ void zero_behind(const PackedAttention<T>& a, T* x, std::int64_t stride) const {
    const std::int64_t columns = a.heads * a.width, threads = std::int64_t{blockDim.y} * kWarp;
    for (std::int64_t i = a.offsets[a.batch] * columns + behind * threads + warp * kWarp + lane;
         x != nullptr && i < a.all_rows * columns; i += gpu::kBlocksBehind * threads)
      gpu::store(x + i / columns * stride + i % columns, real_t<T>{0});
  }
  /// The first column of the head in the sequence's first row, in an array with rows `stride` apart.
  template <class P>
  __device__ P* in(P* x, const PackedAttention<T>& a, std::int64_t stride) const {
    return x + base * stride + head * a.width;
  }
  /// The index of a row in lse and in arrays with the same layout.
  __device__ std::int64_t in_lse(const PackedAttention<T>& a, int row) const {
    return base * a.heads + (a.causal ? row * a.heads + head : head * a.time + row);
  }
};

/// Which weights of a head dropout keeps, as bits in shared memory: four words for the 128 draws of a query's group.
/// Word w holds draws 32 w .. 32 w + 31 in the order of the Philox blocks (philox_cuda.hpp): bit b is from the lower
/// half of block b, bit 16 + b from its upper half.
template <class T>
class WeightKeeps {
 public:
  static constexpr int kWords = 4, kDraws = gpu::kGroupDraws;
  __device__ WeightKeeps(const PackedAttention<T>& a, const AttentionPlace<T>& at, gpu::Drop<real_t<T>> drop,
                         std::uint32_t* sm_bits)
      : drop_(drop),
        group_rows_(static_cast<int>(a.draws.group_rows)),
        row_groups_(a.draws.row_groups),
        philox_(site_of(a, at).draws(drop.threshold > 0 ? a.samples[at.sequence] : 0)),
        first_group_(a.causal ? 0 : static_cast<std::uint64_t>(at.head) * a.draws.head_groups),
        sm_bits_(sm_bits) {}

  static std::size_t bytes(int rows) { return static_cast<std::size_t>(rows * kWords) * sizeof(std::uint32_t); }
  __device__ explicit operator bool() const { return drop_.threshold > 0; }
  /// Draws for queries first .. first + count - 1 and the 128 keys that include `key`. One warp does the work.
  __device__ void draw(int first, int count, int key, int lane) {
    for (int i = 0; i < count; i += 2) draw_pair(first, i, key, lane);
  }
  /// The same, shared among all warps of the block. The bits of the first query are those of the begin-th.
  __device__ void draw_all(int first, int count, int key, const AttentionPlace<T>& at, int begin = 0) {
    const int warps = static_cast<int>(blockDim.y);
    for (int i = 2 * at.warp; i < count; i += 2 * warps) draw_pair(first - begin, begin + i, key, at.lane);
  }
  /// The bits of the i-th query of the last draw, from `key` (a multiple of 8) on. Bit in_bits(k) belongs to key + k.
  /// Keys after the last one of a short row have no draws; their bits are any of the query's.
  __device__ std::uint32_t from(int i, int query, int key) const {
    const int draw = (first_draw(query) + key) % kDraws;
    return sm_bits_[i * kWords + draw / 32] >> (draw % 32 / 4);
  }
  /// For k < 8, k < 16 or k < 32 if key is a multiple of 8, 16 or 32.
  __device__ static int in_bits(int k) { return k / 4 + k % 4 / 2 * 8 + k % 2 * 16; }
  /// The dropout factor of a weight.
  __device__ real_t<T> kept(std::uint32_t bits, int which) const {
    return bits >> which & 1u ? drop_.scale : real_t<T>{0};
  }

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
  __device__ static Dropout site_of(const PackedAttention<T>& a, const AttentionPlace<T>& at) {
    Dropout d = a.dropout;
    if (a.causal) d.site.id += static_cast<std::uint32_t>(at.head);
    return d;
  }
  gpu::Drop<real_t<T>> drop_;
  int group_rows_;
  std::uint64_t row_groups_;
  Philox philox_;
  std::uint64_t first_group_;
  std::uint32_t* sm_bits_;
};

/// Blocks for all rows of all heads, with `warp_rows` rows of a head for each warp, and for the rows after the
/// sequences. Bits do not depend on the number of warps, which shared memory may limit.
template <class T>
gpu::Grid packed_grid(const Stream& stream, const PackedAttention<T>& a, int warp_rows,
                      std::size_t (*shared_bytes)(int rows)) {
  auto warps = static_cast<int>(std::clamp<std::int64_t>(gpu::ceil_div(a.time, warp_rows), 1, kAttentionWarps));
  while (warps > 1 && shared_bytes(warps * warp_rows) > gpu::most_shared_bytes(stream)) warps /= 2;
  const int rows = warps * warp_rows;
  return {.grid = a.batch * a.heads * gpu::ceil_div(a.time, rows) + (a.all_rows > 0 ? gpu::kBlocksBehind : 0),
          .block = {kWarp, warps},
          .shared_bytes = shared_bytes(rows)};
}

}  // namespace lockstep::ops::cuda
