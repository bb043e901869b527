#pragma once
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "ops/causal_attention/causal_attention_kernels.hpp"
#include "ops/common/philox_cuda.hpp"
#include "ops/common/rows_behind_cuda.hpp"

/// Code that the passes of causal attention on a GPU share: the mapping of queries, keys and channels to threads, and
/// the time-aware terms.
///
/// A block works on one head of one sequence, tile by tile. Each warp has kQueries queries; all warps share kKeys keys.
/// Scores use one lane per key. Sums over keys use one lane per four channels, and the two halves of a warp alternate
/// over pairs of keys (0 1, 4 5, ... and 2 3, 6 7, ...). This matches the order of the CPU's draws for time dropout, so
/// one Philox block gives a lane the masks of its four channels for two keys and both tables.
///
/// T is the storage type of rows. Registers, shared memory and scratch memory use real_t<T>: tiles are widened once
/// when they are loaded, and each element then takes part in tens of products.
namespace lockstep::gpu {

using ops::CausalAttention;
using ops::CausalRows;
using ops::TimeBuckets;

inline constexpr int kKeys = kWarp;
inline constexpr int kMostWarps = 8;
/// The widest head: two chunks of the 64 channels that half a warp holds at once.
inline constexpr int kChunkChannels = 64;
inline constexpr int kMostChunks = 2;

enum class Timed : std::uint8_t {
  no,
  whole,   ///< unmasked tables, or tables masked as a whole
  masked,  ///< a mask for each pair and channel
};
/// Queries of a warp, limited by its registers.
template <int kChunks, Timed kTimed>
inline constexpr int kQueries = (kChunks == 1 ? 8 : 4) / (kTimed == Timed::no ? 1 : 2);

/// Four channels, loaded at once.
template <class T>
struct alignas(16) Four {
  T at[4];
};
template <class T>
__device__ const Four<T>& four(const T* p) {
  return *reinterpret_cast<const Four<T>*>(p);
}

/// Stride of table rows: a multiple of four.
inline __host__ __device__ int table_stride(int width) { return (width + 3) / 4 * 4; }
/// Stride of rows in shared memory: an odd multiple of four, so that the lanes' rows start in different banks.
inline __host__ __device__ int tile_stride(int width) { return ((width + 3) / 4 | 1) * 4; }

template <class T>
__device__ T infinity() {
  return static_cast<T>(HUGE_VAL);
}

/// The arguments of a launch. T: real.
template <class T>
struct CausalLaunch {
  std::int64_t sequences, columns;
  std::int64_t stride, kv_stride;  ///< between rows of q, and of k and v, and of their gradients
  std::int64_t rows;               ///< of the arrays
  std::int64_t blocks;             ///< along x; further blocks fill the rows after the sequences
  int heads, width;
  const std::int64_t* offsets;
  const std::uint64_t* samples;
  const std::int64_t* first_query;  ///< null: all rows are queries
  T fill, scale;                    ///< fill: minus infinity excludes later keys
  ops::Dropout dropout;
  Drop<T> drop;
  // Time-aware terms:
  const T* tables;            ///< (sequences or 1, 2, heads, R, table_stride): keys, values, scaled for dropout
  std::int64_t tables_apart;  ///< distance between the tables of two sequences; 0: shared tables
  const std::int64_t* times;
  std::int64_t last;        ///< the bucket of long times, R - 1
  std::uint32_t threshold;  ///< an element is dropped if its 8-bit draw is below this
  ops::Dropout time_dropout;

  // mutant-equivalent: later keys then have weight exp(-infinity)
  __device__ bool filled() const { return fill > -infinity<T>(); }
  // mutant-equivalent: no draw is below 0
  __device__ bool drops() const { return drop.threshold > 0; }  ///< of probabilities
  /// Whether this block fills rows after the sequences.
  __device__ bool behind() const { return blockIdx.x >= blocks; }
  /// y: `columns` columns of rows that are `apart`.
  template <class S>
  __device__ void fill_behind(S* y, std::int64_t apart) const {
    const std::int64_t block = (blockIdx.x - blocks) * gridDim.y + blockIdx.y;
    const std::int64_t threads = std::int64_t{gridDim.x - blocks} * gridDim.y * blockDim.x;
    for (std::int64_t i = offsets[sequences] * columns + block * blockDim.x + threadIdx.x; i < rows * columns;
         i += threads)
      store(y + i / columns * apart + i % columns, real_t<S>{0});
  }
};

/// One head of one sequence.
template <class T>
struct CausalHead {
  std::int64_t base, length, first_query;
  Philox draws, time_draws;
  const T *keys, *values;  ///< tables
  const std::int64_t* times;

  __device__ CausalHead(const CausalLaunch<T>& p, std::int64_t sequence, int head)
      : base(p.offsets[sequence]),
        length(p.offsets[sequence + 1] - base),
        first_query(p.first_query != nullptr ? p.first_query[sequence] : 0),
        draws(at_head(p.dropout, head).draws(p.samples[sequence])),
        time_draws(at_head(p.time_dropout, head).draws(p.samples[sequence])),
        keys(nullptr),
        values(nullptr),
        times(p.times != nullptr ? p.times + base : nullptr) {
    if (p.tables == nullptr) return;
    const std::int64_t table = (p.last + 1) * table_stride(p.width);
    keys = p.tables + sequence * p.tables_apart + head * table;
    values = keys + p.heads * table;
  }
  /// The offset of the head's first channel in the sequence's first row of an array with rows `stride` apart.
  __device__ std::int64_t at(const CausalLaunch<T>& p, int head, std::int64_t stride) const {
    return base * stride + std::int64_t{head} * p.width;
  }

 private:
  __device__ static ops::Dropout at_head(ops::Dropout d, int head) {
    d.site.id += static_cast<std::uint32_t>(head);
    return d;
  }
};

/// The position of a thread.
struct CausalLane {
  int lane, warp, warps;
  int half;     ///< half of the warp
  int channel;  ///< its first channel in each chunk
  __device__ CausalLane()
      : lane(static_cast<int>(threadIdx.x) % kWarp),
        warp(static_cast<int>(threadIdx.x) / kWarp),
        warps(static_cast<int>(blockDim.x) / kWarp),
        half(lane / 16),
        channel(4 * (lane % 16)) {}
};

/// The mask bits of a lane for a pair of keys: in chunk m, bit 16 m + 8 side + 4 key + c, where side is 0 for the keys'
/// table and 1 for the values'.
template <int kChunks>
using MaskBits = std::conditional_t<kChunks == 1, std::uint16_t, std::uint32_t>;

/// Loads rows [0, n) of a tile, which are `apart`. The first `valid` rows exist; the others become zero.
template <class T>
__device__ void load_tile(const CausalLane& me, real_t<T>* sm, const T* __restrict__ from, int n, std::int64_t valid,
                          std::int64_t apart, int width) {
  const int stride = tile_stride(width);
  for (int row = me.warp; row < n; row += me.warps)
    for (int c = me.lane; c < stride; c += kWarp)
      sm[row * stride + c] = row < valid && c < width ? load(from + row * apart + c) : real_t<T>{0};
}

/// s_r += a_r . b_lane: rows a of the warp, b of the tile.
template <int N, class T>
__device__ void add_scores(T (&s)[N], const T* sm_a, const T* sm_b, int lane, int width) {
  const int stride = tile_stride(width);
  for (int c = 0; c < width; c += 4) {
    const Four<T> b = four(sm_b + lane * stride + c);
#pragma unroll
    for (int r = 0; r < N; ++r) {
      const Four<T> a = four(sm_a + r * stride + c);
#pragma unroll
      for (int k = 0; k < 4; ++k) s[r] += a.at[k] * b.at[k];
    }
  }
}

/// The dropout factors (0 or the scale) of queries first .. first + N - 1 and the lane's key of the tile. Half a warp
/// draws for one query, 128 keys at once, and the lanes exchange their draws.
template <int N, class T>
__device__ void draw_keeps(T (&keep)[N], const CausalLaunch<T>& p, const Philox& draws, const CausalLane& me,
                           std::int64_t first, std::int64_t tile) {
  const auto group = static_cast<std::uint64_t>(tile / kGroupDraws);
  const int word = static_cast<int>(tile % kGroupDraws) / kKeys, place = me.lane;
#pragma unroll
  for (int r = 0; r < N; r += 2) {
    const auto i = static_cast<std::uint64_t>(first + r + me.half);
    const auto block =
        draws.block(ops::cpu::kGroupBlocks * (i << 28 | group) + static_cast<std::uint64_t>(me.lane % 16));
    const std::uint32_t mine = word == 0 ? block[0] : word == 1 ? block[1] : word == 2 ? block[2] : block[3];
#pragma unroll
    for (int n = 0; n < 2 && r + n < N; ++n) {  // mutant-equivalent: N is even
      // mutant-equivalent: lanes count modulo 32
      const std::uint32_t bits = __shfl_sync(kWholeWarp, mine, place / 4 + 8 * (place % 4 / 2) + 16 * n);
      keep[r + n] = p.drop(T{1}, bits >> (16 * (place % 2)) & 0xffffu);
    }
  }
}

/// The masks of query i, keys j and j + 1 (j even) and the lane's channels.
template <int kChunks>
__device__ MaskBits<kChunks> draw_masks(const Philox& draws, std::int64_t i, std::int64_t j, int channel,
                                        std::uint32_t threshold) {
  const int place = channel / 4;
  const auto in_group = static_cast<std::uint64_t>(place / 2 + 8 * (place % 2));
  const auto bits = [=](std::uint32_t word) {
    std::uint32_t kept = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) kept |= static_cast<std::uint32_t>((word >> (8 * k) & 0xffu) >= threshold) << k;
    return kept;
  };
  const auto query = static_cast<std::uint64_t>(i) << 28;
  std::uint32_t mask = 0;
  if constexpr (kChunks == 1) {
    const auto words = draws.block(ops::cpu::kGroupBlocks * (query | static_cast<std::uint64_t>(j / 2)) + in_group);
#pragma unroll
    for (int w = 0; w < 4; ++w) mask |= bits(words[w]) << (8 * (w % 2) + 4 * (w / 2));
  } else {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const auto words = draws.block(ops::cpu::kGroupBlocks * (query | static_cast<std::uint64_t>(j + n)) + in_group);
#pragma unroll
      for (int w = 0; w < 4; ++w) mask |= bits(words[w]) << (16 * (w % 2) + 8 * (w / 2) + 4 * n);
    }
  }
  return static_cast<MaskBits<kChunks>>(mask);
}

/// The lane's channels of a table row, 0 where masked. side 0: keys, 1: values; n: index of the key in its pair.
template <Timed kTimed, class T>
__device__ Four<T> masked_four(const T* row, std::uint32_t mask, int chunk, int side, int n) {
  Four<T> x = four(row);
  if constexpr (kTimed == Timed::masked) {
#pragma unroll
    for (int k = 0; k < 4; ++k)
      if ((mask >> (16 * chunk + 8 * side + 4 * n + k) & 1u) == 0) x.at[k] = 0;
  }
  return x;
}

/// Sums 2^K values over the 16 lanes of each half of a warp. The lanes with lane % 16 = v 16 / 2^K hold sum v.
template <int N, class T>
__device__ T sum_halves(T (&v)[N], int lane) {
  int distance = 8;
#pragma unroll
  for (int n = N / 2; n > 0; n /= 2, distance /= 2) {
    const bool upper = (lane & distance) != 0;
#pragma unroll
    for (int k = 0; k < n; ++k) {
      const T kept = upper ? v[k + n] : v[k], sent = upper ? v[k] : v[k + n];
      v[k] = kept + __shfl_xor_sync(kWholeWarp, sent, distance);
    }
  }
  T sum = v[0];
  for (; distance > 0; distance /= 2) sum += __shfl_xor_sync(kWholeWarp, sum, distance);
  return sum;
}

/// A warp's shared memory for the time-aware terms of its queries and a tile of keys.
template <int kChunks>
struct TimeTile {
  std::int32_t* buckets;     ///< (queries, kKeys)
  MaskBits<kChunks>* masks;  ///< (queries, kKeys / 4, lanes)
};

/// For each of the warp's queries x_r and keys j <= i: stores in `to` (queries, kKeys) the products of x_r with the row
/// of the keys' table for the time between them. With `sm_dy` also stores the products of dy_r with the values' table
/// in `to_values`. Fills the buckets and masks of `sm`.
template <int kChunks, Timed kTimed, bool kBoth, class T>
__device__ void time_products(const CausalLaunch<T>& p, const CausalHead<T>& h, const CausalLane& me,
                              const TimeTile<kChunks>& sm, T* to, T* to_values, const T* sm_q, const T* sm_dy,
                              std::int64_t first, std::int64_t tile) {
  constexpr int kRows = kQueries<kChunks, kTimed>;
  const int stride = tile_stride(p.width), in_table = table_stride(p.width);
  const std::int64_t key = tile + me.lane, key_time = h.times[key < h.length ? key : h.length - 1];
#pragma unroll 1
  for (int r = 0; r < kRows; ++r) {
    const std::int64_t i = first + r;
    std::int32_t bucket = 0;
    if (i < h.length && key <= i) {
      const std::int64_t gap = h.times[i] - key_time;
      bucket = static_cast<std::int32_t>(gap < p.last ? gap : p.last);
    }
    sm.buckets[r * kKeys + me.lane] = bucket;
    __syncwarp();
    if (i >= h.length) continue;
    Four<T> x[kChunks], dx[kChunks];
#pragma unroll
    for (int m = 0; m < kChunks; ++m) {
      const int c = kChunkChannels * m + me.channel;
      x[m] = c < in_table ? four(sm_q + r * stride + c) : Four<T>{};
      if constexpr (kBoth) dx[m] = c < in_table ? four(sm_dy + r * stride + c) : Four<T>{};
    }
#pragma unroll 1
    // mutant-equivalent: keys beyond the last visible one have weight 0
    for (int pair = 0; pair < kKeys / 4 && tile + 4 * pair <= i; ++pair) {
      const int j = 4 * pair + 2 * me.half;
      MaskBits<kChunks> mask = 0;
      if constexpr (kTimed == Timed::masked) {
        mask = draw_masks<kChunks>(h.time_draws, i, tile + j, me.channel, p.threshold);
        sm.masks[(r * (kKeys / 4) + pair) * kWarp + me.lane] = mask;
      }
      T sums[kBoth ? 4 : 2] = {};  // for both keys, then for the values' table
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const std::int64_t row = std::int64_t{sm.buckets[r * kKeys + j + n]} * in_table;
#pragma unroll
        for (int m = 0; m < kChunks; ++m) {
          const int c = kChunkChannels * m + me.channel;
          if (c >= in_table) continue;
          const Four<T> t = masked_four<kTimed>(h.keys + row + c, mask, m, 0, n);
#pragma unroll
          for (int k = 0; k < 4; ++k) sums[n] += x[m].at[k] * t.at[k];
          if constexpr (kBoth) {
            const Four<T> u = masked_four<kTimed>(h.values + row + c, mask, m, 1, n);
#pragma unroll
            for (int k = 0; k < 4; ++k) sums[2 + n] += dx[m].at[k] * u.at[k];
          }
        }
      }
      const T sum = sum_halves(sums, me.lane);
      if constexpr (kBoth) {
        T* const products = me.lane % 16 < 8 ? to : to_values;
        if (me.lane % 4 == 0) products[r * kKeys + j + me.lane / 4 % 2] = sum;
      } else {
        if (me.lane % 8 == 0) to[r * kKeys + j + me.lane / 8 % 2] = sum;
      }
    }
  }
  __syncwarp();
}

/// sums_r += sum over the half's keys j of weight_rj (row_j + table_rj): rows of the tile and the time table. side 0:
/// the keys' table, 1: the values'.
template <int kChunks, Timed kTimed, int N, class T>
__device__ void add_weighted(T (&sums)[N][4 * kChunks], const CausalLaunch<T>& p, const CausalLane& me,
                             const T* sm_weights, const T* sm_rows, const T* table, int side,
                             const TimeTile<kChunks>& sm, int keys) {
  const int stride = tile_stride(p.width), in_table = table_stride(p.width);
#pragma unroll 1
  for (int pair = 0; 4 * pair < keys; ++pair)
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int j = 4 * pair + 2 * me.half + n;
#pragma unroll
      for (int m = 0; m < kChunks; ++m) {
        const int c = kChunkChannels * m + me.channel;
        if (c >= in_table) continue;
        const Four<T> row = four(sm_rows + j * stride + c);
#pragma unroll
        for (int r = 0; r < N; ++r) {
          const T weight = sm_weights[r * kKeys + j];
          Four<T> x = row;
          if constexpr (kTimed != Timed::no) {
            const std::uint32_t mask =
                kTimed == Timed::masked ? sm.masks[(r * (kKeys / 4) + pair) * kWarp + me.lane] : 0u;
            const Four<T> t =
                masked_four<kTimed>(table + std::int64_t{sm.buckets[r * kKeys + j]} * in_table + c, mask, m, side, n);
#pragma unroll
            for (int k = 0; k < 4; ++k) x.at[k] += t.at[k];
          }
#pragma unroll
          for (int k = 0; k < 4; ++k) sums[r][4 * m + k] += weight * x.at[k];
        }
      }
    }
}

/// The sum of both halves, in both.
template <int N, int C, class T>
__device__ void join_halves(T (&sums)[N][C]) {
#pragma unroll
  for (int r = 0; r < N; ++r)
#pragma unroll
    for (int k = 0; k < C; ++k) sums[r][k] += __shfl_xor_sync(kWholeWarp, sums[r][k], 16);
}

}  // namespace lockstep::gpu
