#pragma once
#include "causal_attention_launch_cuda.hpp"

/// Gradients of the time tables: sums over the pairs of a block, by bucket.
///
/// The keys of a query form runs of equal buckets (causal_attention_tiles_cuda.hpp). The weights of a run are summed in
/// registers, times the query once, and added to the bucket's row once. Only one warp of the block adds to a row: the
/// warp of this number, modulo the number of warps. Buckets 0 (ties and the query itself) and R - 1 (long times) have
/// most of the runs. For these each warp takes a share of the queries and keeps its sums in registers.
namespace lockstep::gpu {

/// Buckets of which each warp has sums of its own: 0 and R - 1.
inline constexpr int kHot = 2;

/// The table gradients of a block for one head: (2, R, table_stride).
struct TableSums {
  std::int64_t rows;
  int stride;
  __host__ __device__ TableSums(std::int64_t last, int width) : rows(last + 1), stride(table_stride(width)) {}
  __host__ __device__ std::int64_t size() const { return 2 * rows * stride; }
  /// Bytes of shared memory for a block's sums and marks.
  template <class T>
  std::size_t bytes() const {
    return static_cast<std::size_t>(size()) * sizeof(T) + static_cast<std::size_t>(rows);
  }
};

/// The arrays of one block for one head. Sequences use a part of the buckets, so rows without terms are neither written
/// to the partial sums nor read from them.
template <class T>
struct BlockTables {
  T* sums;
  std::uint8_t* marks;  ///< (R): whether the row of `sums` has terms
  T* partial;
  std::uint8_t* written;  ///< whether a row of `partial` is written; rows are `apart`
  std::int64_t apart;
  __device__ void clear(const TableSums& table) const {
    for (std::int64_t e = 4 * std::int64_t{threadIdx.x}; e < table.size(); e += 4 * std::int64_t{blockDim.x})
      *reinterpret_cast<Four<T>*>(sums + e) = {};
    for (std::int64_t row = threadIdx.x; row < table.rows; row += blockDim.x) marks[row] = written[row * apart] = 0;
  }
};

/// Divides the tile's keys among the runs of one of the block's queries, which sees `keys` of them (at most 0: none).
/// Bit j of heads[query]: a run begins at key j; the bit after the last key is set, too. Bit j of owned[warp, query]:
/// this run belongs to that warp.
template <class S, class T>
__device__ void write_runs(const CausalLaunch<T>& p, const S& sm, const CausalLane& me, int query, std::int64_t keys) {
  const std::int32_t bucket = sm.time.buckets[query * kKeys + me.lane];
  const std::int32_t before = __shfl_up_sync(kWholeWarp, bucket, 1);
  const bool begins = me.lane < keys && (me.lane == 0 || bucket != before);
  const unsigned heads = __ballot_sync(kWholeWarp, begins || me.lane == keys);
  if (me.lane == 0) sm.heads[query] = heads;
  const int owner = (bucket == 0 || bucket == p.last ? query : bucket) % me.warps;
  unsigned mine = 0;
  for (int w = 0; w < me.warps; ++w) {
    const unsigned runs = __ballot_sync(kWholeWarp, begins && owner == w);
    if (me.lane == w) mine = runs;
  }
  if (me.lane < me.warps) sm.owned[me.lane * S::kQueries + query] = mine;
}

/// dtable_r(ij) += weight_ij x_i over the warp's runs of the block's queries [i0, i1) and the tile's keys. Half a warp
/// has both tables' sums over its keys; the halves then exchange them, so that the first has those of the keys' table
/// and the second those of the values'.
template <int kChunks, Timed kTimed, class S, class T>
__device__ void add_runs(const CausalLaunch<T>& p, const S& sm, const CausalLane& me, const BlockTables<T>& tables,
                         T (&hot)[kHot][4 * kChunks], int i0, int i1) {
  // Unmasked sums are the same for all channels.
  constexpr int kSums = kTimed == Timed::masked ? 4 * kChunks : 1;
  const TableSums table(p.last, p.width);
  const T* const x = me.half == 0 ? sm.q : sm.dy;
  T* const mine = tables.sums + me.half * table.rows * table.stride;
  for (int base = 0; base < S::kQueries; base += kWarp) {
    const int candidate = base + me.lane;
    const unsigned candidates = candidate >= i0 && candidate < i1 ? sm.owned[me.warp * S::kQueries + candidate] : 0;
    unsigned queries = __ballot_sync(kWholeWarp, candidates != 0);
    for (; queries != 0; queries &= queries - 1) {
      const int i = base + __ffs(static_cast<int>(queries)) - 1;
      const unsigned heads = sm.heads[i];
      unsigned runs = sm.owned[me.warp * S::kQueries + i];
      for (; runs != 0; runs &= runs - 1) {
        const int begin = __ffs(static_cast<int>(runs)) - 1;
        const unsigned later = heads >> begin >> 1;
        const int end = later != 0 ? begin + __ffs(static_cast<int>(later)) : kKeys;
        T sums[2][kSums] = {};
        for (int quad = begin / 4; 4 * quad < end; ++quad) {
          std::uint32_t mask = 0;
          if constexpr (kTimed == Timed::masked) mask = sm.time.mask(i, quad, me.lane);
#pragma unroll
          for (int n = 0; n < 2; ++n) {
            const int j = 4 * quad + 2 * me.half + n;
            const bool inside = j >= begin && j < end;
            const T weights[2] = {inside ? sm.ds[i * kKeys + j] : T{0}, inside ? sm.p[i * kKeys + j] : T{0}};
#pragma unroll
            for (int c = 0; c < kSums; ++c)
#pragma unroll
              for (int side = 0; side < 2; ++side)
                if (kept<kChunks, kTimed>(mask, c / 4, side, n, c % 4)) sums[side][c] += weights[side];
          }
        }
        const std::int32_t bucket = sm.time.buckets[i * kKeys + begin];
        const bool is_hot = bucket == 0 || bucket == p.last;
        if (!is_hot && me.lane == 0) tables.marks[bucket] = 1;
        T total[kSums];
#pragma unroll
        for (int c = 0; c < kSums; ++c) {
          const T here = me.half == 0 ? sums[0][c] : sums[1][c], there = me.half == 0 ? sums[1][c] : sums[0][c];
          total[c] = here + __shfl_xor_sync(kWholeWarp, there, 16);
        }
#pragma unroll
        for (int m = 0; m < kChunks; ++m) {
          const int c = kChunkChannels * m + me.channel;
          if (c >= table.stride) continue;
          Four<T> terms = four(x + i * tile_stride(p.width) + c);
#pragma unroll
          for (int k = 0; k < 4; ++k) terms.at[k] *= total[kSums == 1 ? 0 : 4 * m + k];
          auto& row = *reinterpret_cast<Four<T>*>(mine + std::int64_t{bucket} * table.stride + c);
          const Four<T> old = is_hot ? Four<T>{} : row;
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            if (!is_hot)
              row.at[k] = old.at[k] + terms.at[k];
            else if (bucket == 0)
              hot[0][4 * m + k] += terms.at[k];
            else
              hot[1][4 * m + k] += terms.at[k];
          }
        }
      }
    }
  }
}

/// Adds the sums of a block to its share of the partial sums, applying the sequence's mask if there is one, and clears
/// them. The warps' sums of a hot bucket pass through `sm_hot` (warps, kHot, 2, table_stride) and are added in the
/// order of warps. All threads must call it.
template <int kChunks, class T>
__device__ void flush_tables(const CausalLaunch<T>& p, const CausalLane& me, const BlockTables<T>& tables,
                             T (&hot)[kHot][4 * kChunks], T* sm_hot, int head, std::int64_t sequence,
                             const Drop<T>& drop) {
  const TableSums table(p.last, p.width);
  if (threadIdx.x == 0) tables.marks[0] = tables.marks[p.last] = 1;
#pragma unroll
  for (int at = 0; at < kHot; ++at)
#pragma unroll
    for (int c = 0; c < 4 * kChunks; ++c) {
      const int channel = kChunkChannels * (c / 4) + me.channel + c % 4;
      if (channel < table.stride) sm_hot[((me.warp * kHot + at) * 2 + me.half) * table.stride + channel] = hot[at][c];
      hot[at][c] = 0;
    }
  __syncthreads();
  for (std::int64_t e = 4 * std::int64_t{threadIdx.x}; e < table.size(); e += 4 * std::int64_t{blockDim.x}) {
    const std::int64_t c = e % table.stride, row = e / table.stride % table.rows,
                       side = e / (table.stride * table.rows);
    if (tables.marks[row] == 0) continue;
    Four<T> sum = four(tables.sums + e);
    if (row == 0 || row == p.last)
      for (int w = 0; w < me.warps; ++w) {
        const Four<T> of_warp = four(sm_hot + ((w * kHot + (row == 0 ? 0 : 1)) * 2 + side) * table.stride + c);
#pragma unroll
        for (int k = 0; k < 4; ++k) sum.at[k] += of_warp.at[k];
      }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (p.tables_apart > 0 && c + k < p.width)
        sum.at[k] *=
            table_keep(p, drop, p.samples[sequence], static_cast<int>(side), row, std::int64_t{head} * p.width + c + k);
      if (tables.written[row * tables.apart] != 0) sum.at[k] += tables.partial[e + k];
    }
    *reinterpret_cast<Four<T>*>(tables.partial + e) = sum;
    *reinterpret_cast<Four<T>*>(tables.sums + e) = {};
  }
  __syncthreads();
  for (std::int64_t row = threadIdx.x; row < table.rows; row += blockDim.x) {
    if (tables.marks[row] != 0) tables.written[row * tables.apart] = 1;
    tables.marks[row] = 0;
  }
}

}  // namespace lockstep::gpu
