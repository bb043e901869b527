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
/// A block works on a tile of queries of one head of one sequence, and on tiles of kKeys keys in turn. Each warp has
/// kRows queries; all warps share the keys. Scores use one lane per key. Sums over keys use one lane per four channels,
/// and the two halves of a warp alternate over pairs of keys (0 1, 4 5, ... and 2 3, 6 7, ...). This matches the order
/// of the CPU's draws for time dropout, so one Philox block gives a lane the masks of its four channels for two keys
/// and both tables.
///
/// For a fixed query the gap to key j does not increase with j, so the keys of a query form runs of equal buckets. A
/// table row is loaded once per run of a lane's keys.
///
/// T is the storage type of rows. Registers, shared memory and scratch memory use real_t<T>: tiles are widened once
/// when they are loaded, and each element then takes part in tens of products.
namespace lockstep::gpu {

using ops::CausalAttention;
using ops::CausalRows;
using ops::TimeBuckets;

inline constexpr int kKeys = kWarp;
/// Queries of a warp: one for each half of a warp that draws dropout.
inline constexpr int kRows = 2;
/// The widest head: two chunks of the 64 channels that half a warp holds at once.
inline constexpr int kChunkChannels = 64;
inline constexpr int kMostChunks = 2;

enum class Timed : std::uint8_t {
  whole,   ///< unmasked tables, or tables masked as a whole
  masked,  ///< a mask for each pair and channel
};
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
  T scale;
  ops::Dropout dropout;
  Drop<T> drop;
  // Time-aware terms:
  const T* tables;            ///< (sequences or 1, 2, heads, R, table_stride): keys, values, scaled for dropout
  std::int64_t tables_apart;  ///< distance between the tables of two sequences; 0: shared tables
  const std::int64_t* times;
  std::int64_t last;        ///< the bucket of long times, R - 1
  std::uint32_t threshold;  ///< an element is dropped if its 8-bit draw is below this
  ops::Dropout time_dropout;

  __device__ bool drops() const { return drop.threshold > 0; }  ///< of probabilities
  /// Whether this block fills rows after the sequences.
  __device__ bool behind() const { return blockIdx.x >= blocks; }
  /// y: `columns` columns of rows that are `apart`.
  template <class S>
  __device__ void fill_behind(S* y, std::int64_t apart) const {
    const std::int64_t others = std::int64_t{gridDim.y} * gridDim.z;
    const std::int64_t block = (blockIdx.x - blocks) * others + blockIdx.z * gridDim.y + blockIdx.y;
    const std::int64_t threads = (gridDim.x - blocks) * others * blockDim.x;
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
  /// The first row of a tile of queries, of which `later` tiles of the sequence see more keys. Cuts off the rows after
  /// it, which it does not see. Tiles end with the sequence, so that an incomplete one is the first: it sees few keys.
  __device__ std::int64_t first_of_tile(std::int64_t later, int rows) {
    length -= later * rows;
    return length > rows ? length - rows : 0;
  }
  __device__ bool is_query(std::int64_t i) const { return i >= first_query && i < length; }
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

/// The mask bits of a lane for a pair of keys, at mask_bit().
template <int kChunks>
using MaskBits = std::conditional_t<kChunks == 1, std::uint16_t, std::uint32_t>;
/// side: 0 for the keys' table, 1 for the values'; n: index of the key in its pair; k: of the channel in its four.
template <int kChunks>
__device__ constexpr int mask_bit(int chunk, int side, int n, int k) {
  return kChunks == 1 ? 8 * (k % 2) + 4 * (k / 2) + 3 - side - 2 * n : 8 * k + 7 - chunk - 2 * side - 4 * n;
}

/// Loads rows [0, n) of a tile, which are `apart`. The first `valid` rows exist; the others become zero.
template <class T>
__device__ void load_tile(const CausalLane& me, real_t<T>* sm, const T* __restrict__ from, int n, std::int64_t valid,
                          std::int64_t apart, int width) {
  using Pair = Pack<real_t<T>, 2>;
  const int stride = tile_stride(width);
  const bool pairs =
      width % 2 == 0 && apart % 2 == 0 && reinterpret_cast<std::uintptr_t>(from) % sizeof(Pack<T, 2>) == 0;
  for (int row = me.warp; row < n; row += me.warps)
    if (pairs) {
      for (int c = 2 * me.lane; c < stride; c += 2 * kWarp)
        *reinterpret_cast<Pair*>(sm + row * stride + c) =
            row < valid && c < width ? load<2>(from + row * apart + c) : Pair{};
    } else {
      for (int c = me.lane; c < stride; c += kWarp)
        sm[row * stride + c] = row < valid && c < width ? load(from + row * apart + c) : real_t<T>{0};
    }
}

/// s_r += a_r . b_lane: rows a of the warp, b of the tile.
template <class T>
__device__ void add_scores(T (&s)[kRows], const T* sm_a, const T* sm_b, int lane, int width) {
  const int stride = tile_stride(width);
  for (int c = 0; c < width; c += 4) {
    const Four<T> b = four(sm_b + lane * stride + c);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const Four<T> a = four(sm_a + r * stride + c);
#pragma unroll
      for (int k = 0; k < 4; ++k) s[r] += a.at[k] * b.at[k];
    }
  }
}

/// The dropout factors (0 or the scale) of queries first and first + 1 and the lane's key of the tile. Half a warp
/// draws for one query, 128 keys at once, and the lanes exchange their draws.
template <class T>
__device__ void draw_keeps(T (&keep)[kRows], const CausalLaunch<T>& p, const Philox& draws, const CausalLane& me,
                           std::int64_t first, std::int64_t tile) {
  const auto group = static_cast<std::uint64_t>(tile / kGroupDraws);
  const int place = me.lane;
  const auto i = static_cast<std::uint64_t>(first + me.half);
  const auto block = draws.block(ops::cpu::kGroupBlocks * (i << 28 | group) + static_cast<std::uint64_t>(me.lane % 16));
  const std::uint32_t mine = word_of(block, static_cast<int>(tile % kGroupDraws) / kKeys);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const std::uint32_t bits = __shfl_sync(kWholeWarp, mine, place / 4 + 8 * (place % 4 / 2) + 16 * r);
    keep[r] = p.drop(T{1}, bits >> (16 * (place % 2)) & 0xffffu);
  }
}

/// Bit 7 of each byte: whether the byte is at least the threshold, which is below 256.
__device__ inline std::uint32_t at_least(std::uint32_t bytes, std::uint32_t threshold) {
  constexpr std::uint32_t kTop = 0x80808080u;
  const std::uint32_t rest = (bytes | kTop) - (threshold & 0x7fu) * 0x01010101u;  // of the lower 7 bits
  return (threshold < 128 ? bytes | rest : bytes & rest) & kTop;
}

/// The masks of query i, keys j and j + 1 (j even) and the lane's channels.
template <int kChunks>
__device__ MaskBits<kChunks> draw_masks(const Philox& draws, std::int64_t i, std::int64_t j, int channel,
                                        std::uint32_t threshold) {
  const int place = channel / 4;
  const auto in_group = static_cast<std::uint64_t>(place / 2 + 8 * (place % 2));
  const auto query = static_cast<std::uint64_t>(i) << 28;
  std::uint32_t mask = 0;
  if constexpr (kChunks == 1) {
    const auto words = draws.block(ops::cpu::kGroupBlocks * (query | static_cast<std::uint64_t>(j / 2)) + in_group);
#pragma unroll
    for (int w = 0; w < 4; ++w) mask |= at_least(words[w], threshold) >> w;  // word w: side w % 2 of key w / 2
    mask = mask >> 4 | mask >> 16;                                           // from the upper halves of four bytes
  } else {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const auto words = draws.block(ops::cpu::kGroupBlocks * (query | static_cast<std::uint64_t>(j + n)) + in_group);
#pragma unroll
      for (int w = 0; w < 4; ++w) mask |= at_least(words[w], threshold) >> (4 * n + w);  // chunk w % 2 of side w / 2
    }
  }
  return static_cast<MaskBits<kChunks>>(mask);
}

/// Whether the lane's channel k of a chunk is kept.
template <int kChunks, Timed kTimed>
__device__ bool kept(std::uint32_t mask, int chunk, int side, int n, int k) {
  return kTimed != Timed::masked || (mask >> mask_bit<kChunks>(chunk, side, n, k) & 1u) != 0;
}

/// The lane's channels of the table row that it used last.
template <int kChunks, class T>
struct TableRow {
  std::int32_t bucket = -1;
  Four<T> at[kChunks] = {};
  __device__ void take(const T* table, std::int32_t wanted, int in_table, int channel) {
    if (wanted == bucket) return;
    bucket = wanted;
#pragma unroll
    for (int m = 0; m < kChunks; ++m) {
      const int c = kChunkChannels * m + channel;
      if (c < in_table) at[m] = four(table + std::int64_t{wanted} * in_table + c);
    }
  }
};

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

/// Shared memory for the time-aware terms of the queries of a warp, or of a block, and a tile of keys.
template <int kChunks>
struct TimeTile {
  std::int32_t* buckets;     ///< (queries, kKeys)
  MaskBits<kChunks>* masks;  ///< (queries, kKeys / 4, lanes)
  __device__ MaskBits<kChunks>& mask(int query, int quad, int lane) const {
    return masks[(query * (kKeys / 4) + quad) * kWarp + lane];
  }
};

/// Shared memory of a block of kWarps warps: a tile of keys, its tile of queries, and what belongs to their pairs.
/// Arrays of the backward pass (kBoth) are null in the forward pass.
template <class T, int kChunks, Timed kTimed, int kWarps, bool kBoth>
struct Tiles {
  static constexpr int kQueries = kWarps * kRows, kPairs = kQueries * kKeys;
  T *k, *v, *q, *dy, *p, *ds;
  TimeTile<kChunks> time;
  std::uint32_t *heads, *owned;  ///< see write_runs()
  unsigned char* end;

  __host__ __device__ static std::size_t bytes(int width) {
    constexpr std::size_t kSides = kBoth ? 2 : 1;
    std::size_t bytes =
        ((2 * kKeys + kSides * kQueries) * static_cast<std::size_t>(tile_stride(width)) + kSides * kPairs) * sizeof(T);
    bytes += kPairs * sizeof(std::int32_t);
    if (kBoth) bytes += (1 + kWarps) * kQueries * sizeof(std::uint32_t);
    if (kTimed == Timed::masked) bytes += kPairs / 4 * kWarp * sizeof(MaskBits<kChunks>);
    return bytes;
  }
  __device__ Tiles(unsigned char* memory, int width) {
    const int stride = tile_stride(width);
    k = reinterpret_cast<T*>(memory);
    v = k + kKeys * stride;
    q = v + kKeys * stride;
    dy = q + kQueries * stride;
    p = kBoth ? dy + kQueries * stride : dy;
    ds = p + kPairs;
    time.buckets = reinterpret_cast<std::int32_t*>(kBoth ? ds + kPairs : ds);
    heads = reinterpret_cast<std::uint32_t*>(time.buckets + kPairs);
    owned = heads + kQueries;
    time.masks = reinterpret_cast<MaskBits<kChunks>*>(kBoth ? owned + kWarps * kQueries : heads);
    end = memory + bytes(width);
  }
  /// A view with the warp's own queries.
  __device__ Tiles of_warp(int warp, int width) const {
    Tiles mine = *this;
    const int queries = warp * kRows;
    mine.q += queries * tile_stride(width);
    mine.dy += queries * tile_stride(width);
    mine.p += queries * kKeys;
    mine.ds += queries * kKeys;
    mine.time.buckets += queries * kKeys;
    mine.time.masks += queries * (kKeys / 4) * kWarp;
    return mine;
  }
};

/// Writes the buckets of a query and the tile's keys, one per lane. Keys that the query does not see, or all if there
/// is no query, have bucket 0.
template <class T>
__device__ void write_buckets(const CausalLaunch<T>& p, const CausalHead<T>& h, std::int64_t i, std::int64_t key,
                              std::int32_t* bucket) {
  std::int64_t gap = 0;
  if (h.is_query(i) && key <= i) gap = h.times[i] - h.times[key];
  *bucket = static_cast<std::int32_t>(gap < p.last ? gap : p.last);
}

/// For each of the warp's queries x_r and keys j <= i: stores in `to` (queries, kKeys) the products of x_r with the row
/// of the keys' table for the time between them. With `sm_dy` also stores the products of dy_r with the values' table
/// in `to_values`. Fills the buckets and masks of `sm`.
template <int kChunks, Timed kTimed, bool kBoth, class T>
__device__ void time_products(const CausalLaunch<T>& p, const CausalHead<T>& h, const CausalLane& me,
                              const TimeTile<kChunks>& sm, T* to, T* to_values, const T* sm_q, const T* sm_dy,
                              std::int64_t first, std::int64_t tile) {
  const int stride = tile_stride(p.width), in_table = table_stride(p.width);
#pragma unroll 1
  for (int r = 0; r < kRows; ++r) {
    const std::int64_t i = first + r;
    write_buckets(p, h, i, tile + me.lane, sm.buckets + r * kKeys + me.lane);
    __syncwarp();
    if (!h.is_query(i)) continue;
    Four<T> x[kChunks] = {}, dx[kChunks] = {};  // 0 behind the last channel
#pragma unroll
    for (int m = 0; m < kChunks; ++m) {
      const int c = kChunkChannels * m + me.channel;
      if (c >= in_table) continue;
      x[m] = four(sm_q + r * stride + c);
      if constexpr (kBoth) dx[m] = four(sm_dy + r * stride + c);
    }
    // A loop of its own: the draws of one pair of keys are a chain of operations, and several chains run side by side.
    if constexpr (kTimed == Timed::masked)
#pragma unroll 4
      for (int quad = 0; quad < kKeys / 4 && tile + 4 * quad <= i; ++quad)
        sm.mask(r, quad, me.lane) =
            draw_masks<kChunks>(h.time_draws, i, tile + 4 * quad + 2 * me.half, me.channel, p.threshold);
    TableRow<kChunks, T> keys, values;
#pragma unroll 1
    for (int quad = 0; quad < kKeys / 4 && tile + 4 * quad <= i; ++quad) {
      const int j = 4 * quad + 2 * me.half;
      MaskBits<kChunks> mask = 0;
      if constexpr (kTimed == Timed::masked) mask = sm.mask(r, quad, me.lane);
      T sums[kBoth ? 4 : 2] = {};  // for both keys, then for the values' table
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const std::int32_t bucket = sm.buckets[r * kKeys + j + n];
        keys.take(h.keys, bucket, in_table, me.channel);
        if constexpr (kBoth) values.take(h.values, bucket, in_table, me.channel);
#pragma unroll
        for (int m = 0; m < kChunks; ++m)
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            if (kept<kChunks, kTimed>(mask, m, 0, n, k)) sums[n] += x[m].at[k] * keys.at[m].at[k];
            if constexpr (kBoth)
              if (kept<kChunks, kTimed>(mask, m, 1, n, k)) sums[2 + n] += dx[m].at[k] * values.at[m].at[k];
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
template <int kChunks, Timed kTimed, class T>
__device__ void add_weighted(T (&sums)[kRows][4 * kChunks], const CausalLaunch<T>& p, const CausalLane& me,
                             const T* sm_weights, const T* sm_rows, const T* table, int side,
                             const TimeTile<kChunks>& sm, int keys) {
  const int stride = tile_stride(p.width), in_table = table_stride(p.width);
  TableRow<kChunks, T> rows[kRows];
#pragma unroll 1
  for (int quad = 0; 4 * quad < keys; ++quad) {
    std::uint32_t masks[kRows] = {};
    if constexpr (kTimed == Timed::masked) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) masks[r] = sm.mask(r, quad, me.lane);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int j = 4 * quad + 2 * me.half + n;
      T weights[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        weights[r] = sm_weights[r * kKeys + j];
        rows[r].take(table, sm.buckets[r * kKeys + j], in_table, me.channel);
      }
#pragma unroll
      for (int m = 0; m < kChunks; ++m) {
        const int c = kChunkChannels * m + me.channel;
        if (c >= in_table) continue;
        const Four<T> row = four(sm_rows + j * stride + c);
#pragma unroll
        for (int r = 0; r < kRows; ++r)
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            T x = row.at[k];
            if (kept<kChunks, kTimed>(masks[r], m, side, n, k)) x += rows[r].at[m].at[k];
            sums[r][4 * m + k] += weights[r] * x;
          }
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
