#include <algorithm>

#include "causal_attention_kernels.hpp"
#include "causal_attention_tables_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

using namespace gpu;

/// Blocks that sum gradients of tables, over all heads: one per multiprocessor of an H100, as the sums of a block fill
/// most of its shared memory. Each block has its own sums, so this number fixes the order of additions on every GPU.
constexpr std::int64_t kTableBlocks = 132;
/// Warps of a block of the first kernel. Its tiles fit into 99 KiB for every type and width.
template <class R, int kChunks>
constexpr int kQueryWarps = 16 / kChunks / (static_cast<int>(sizeof(R)) / 4);
template <class R, int kChunks, Timed kTimed>
using BackwardTiles = Tiles<R, kChunks, kTimed, kQueryWarps<R, kChunks>, true>;

/// The weights of pairs and the gradients of their scores: (N, heads, keys of the longest sequence, in whole tiles).
/// The first kernel writes them for the tiles of keys that a query sees, and the second one reads them.
template <class R>
struct PairWeights {
  R *p, *ds;
  std::int64_t keys;
};

/// The destinations of the gradients.
template <class T>
struct CausalGradients {
  T *dq, *dk, *dv;
  std::int64_t add_dq, add_dkv;  ///< not 0: add; see ColumnSums::accumulate
  real_t<T>*dkeys, *dvalues;
  real_t<T>* partials;        ///< (table_blocks, heads) of TableSums
  std::uint8_t* written;      ///< (heads, R, table_blocks), see BlockTables
  real_t<T>* dtables;         ///< as partials; null: shared memory has space for a block's sums and marks
  std::uint8_t* marks;        ///< (table_blocks, heads, R)
  std::int64_t table_blocks;  ///< of the first kernel
  real_t<T> table_scale;
};

/// A block works on 2 queries per warp of one head, of one sequence after another; the queries with most keys come
/// first. Tiles of 32 keys are processed in turn. Probabilities P are recomputed from logsum, dS from P, the product dP
/// and the row sums D_i = dy_i y_i. Stores P and dS for the second kernel and dq, and sums the gradients of tables.
/// Each pair costs three products of head width; masks are drawn once. Bound by instructions: with element masks by
/// Philox.
template <class T, int kChunks, Timed kTimed>
__global__ void __launch_bounds__(kWarp* kQueryWarps<real_t<T>, kChunks>, 1)
    causal_backward_queries_kernel(gpu::Earlier earlier, CausalLaunch<real_t<T>> p, CausalGradients<T> to,
                                   PairWeights<real_t<T>> weights, std::int64_t tiles, const T* __restrict__ dy,
                                   const T* __restrict__ y, const T* __restrict__ q, const T* __restrict__ k,
                                   const T* __restrict__ v, const real_t<T>* __restrict__ logsum,
                                   Drop<real_t<T>> table_drop) {
  earlier.wait();
  using R = real_t<T>;
  using Sm = BackwardTiles<R, kChunks, kTimed>;
  constexpr int kChannels = 4 * kChunks;
  if (p.behind()) {
    if (!to.add_dq) p.fill_behind(to.dq, p.stride);
    return;
  }
  const CausalLane me;
  const int head = static_cast<int>(blockIdx.y);
  const Sm block(sm_bytes, p.width), sm = block.of_warp(me.warp, p.width);
  const R none = -infinity<R>();
  R hot[kHot][kChannels] = {};
  const TableSums table(p.last, p.width);
  const std::int64_t mine = std::int64_t{blockIdx.x} * p.heads + head, of_block = mine * table.size();
  auto* const sm_sums = reinterpret_cast<R*>(block.end);
  const bool shared = to.dtables == nullptr;
  const BlockTables<R> tables = {
      shared ? sm_sums : to.dtables + of_block,
      shared ? reinterpret_cast<std::uint8_t*>(sm_sums + table.size()) : to.marks + mine * table.rows,
      to.partials + of_block, to.written + head * table.rows * to.table_blocks + blockIdx.x, to.table_blocks};
  tables.clear(table);
  const auto flush = [&](std::int64_t sequence) {
    flush_tables<kChunks>(p, me, tables, hot, block.k, head, sequence, table_drop);
  };

  for (std::int64_t item = blockIdx.x; item < tiles * p.sequences; item += p.blocks) {
    const std::int64_t sequence = item % p.sequences;
    // With one mask per sequence, sums of different sequences stay apart.
    if (p.tables_apart > 0 && item >= p.blocks && sequence != (item - p.blocks) % p.sequences)
      flush((item - p.blocks) % p.sequences);
    CausalHead<R> h(p, sequence, head);
    const std::int64_t top = h.first_of_tile(item / p.sequences, Sm::kQueries);
    const std::int64_t at = h.at(p, head, p.columns), q_at = h.at(p, head, p.stride);
    const std::int64_t kv_at = h.at(p, head, p.kv_stride), first = top + me.warp * kRows;
    R dq[kRows][kChannels] = {}, lse[kRows] = {}, mean[kRows] = {};

    const std::int64_t end = h.length > h.first_query ? h.length : 0;
    for (std::int64_t tile = 0; tile < end; tile += kKeys) {
      __syncthreads();  // the previous tiles are no longer in use
      if (tile == 0) {
        load_tile(me, block.q, q + q_at + top * p.stride, Sm::kQueries, h.length - top, p.stride, p.width);
        load_tile(me, block.dy, dy + at + top * p.columns, Sm::kQueries, h.length - top, p.columns, p.width);
      }
      load_tile(me, sm.k, k + kv_at + tile * p.kv_stride, kKeys, h.length - tile, p.kv_stride, p.width);
      load_tile(me, sm.v, v + kv_at + tile * p.kv_stride, kKeys, h.length - tile, p.kv_stride, p.width);
      __syncthreads();
      if (tile == 0) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const std::int64_t i = first + r;
          if (!h.is_query(i)) continue;
          R product = 0;
          for (int c = me.lane; c < p.width; c += kWarp)
            product += sm.dy[r * tile_stride(p.width) + c] * load(y + at + i * p.columns + c);
          mean[r] = warp_reduce(product);
          lse[r] = logsum[(h.base + i) * p.heads + head];
        }
      }
      if (first < h.length && tile < first + kRows) {
        const std::int64_t key = tile + me.lane;
        R s[kRows] = {}, dp[kRows] = {}, keep[kRows];
        add_scores(s, sm.q, sm.k, me.lane, p.width);
        add_scores(dp, sm.dy, sm.v, me.lane, p.width);
        time_products<kChunks, kTimed, true>(p, h, me, sm.time, sm.ds, sm.p, sm.q, sm.dy, first, tile);
        if (p.drops()) draw_keeps(keep, p, h.draws, me, first, tile);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const std::int64_t i = first + r;
          const bool seen = h.is_query(i) && key <= i;
          const int pair = r * kKeys + me.lane;
          s[r] += seen ? sm.ds[pair] : R{0};
          dp[r] += seen ? sm.p[pair] : R{0};
          s[r] = seen ? s[r] * p.scale : none;
          const R probability = s[r] == none ? R{0} : exp(s[r] - lse[r]), kept = p.drops() ? keep[r] : R{1};
          sm.p[pair] = probability * kept;
          sm.ds[pair] = seen ? probability * (dp[r] * kept - mean[r]) * p.scale : R{0};
          if (h.is_query(i)) {
            const std::int64_t at_pair = ((h.base + i) * p.heads + head) * weights.keys + key;
            weights.p[at_pair] = sm.p[pair];
            weights.ds[at_pair] = sm.ds[pair];
          }
        }
        __syncwarp();
        const std::int64_t seen = first + kRows - tile;
        add_weighted<kChunks, kTimed>(dq, p, me, sm.ds, sm.k, h.keys, 0, sm.time,
                                      static_cast<int>(seen < kKeys ? seen : kKeys));
        for (int r = 0; r < kRows; ++r)
          write_runs(p, block, me, me.warp * kRows + r, h.is_query(first + r) ? first + r + 1 - tile : 0);
      }
      __syncthreads();
      // Queries of the block, by their index in it, that see a key of the tile.
      const int i0 = tile < top ? 0 : static_cast<int>(tile - top);
      const int i1 = static_cast<int>(Sm::kQueries < h.length - top ? Sm::kQueries : h.length - top);
      add_runs<kChunks, kTimed>(p, block, me, tables, hot, i0, i1);
    }

    join_halves(dq);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t i = first + r;
      if (i >= h.length) break;
      if (me.half != r) continue;
#pragma unroll
      for (int c = 0; c < kChannels; ++c) {
        const int channel = kChunkChannels * (c / 4) + me.channel + c % 4;
        if (channel >= p.width) continue;
        store(to.dq + q_at + i * p.stride + channel, h.is_query(i) ? dq[r][c] : R{0}, to.add_dq != 0);
      }
    }
  }
  // The last item of this block.
  const std::int64_t last = (tiles * p.sequences - 1 - blockIdx.x) / p.blocks * p.blocks + blockIdx.x;
  flush(last % p.sequences);
}

/// Warps of a block of the second kernel.
constexpr int kSumWarps = 8;

/// dkeys, dvalues (R, C) += table_scale times the sum of the blocks' partial sums. A block has 32 elements, a lane for
/// each; warp w adds the partial sums of blocks w, w + 8, ..., and the first warp adds the sums of the warps.
template <class T>
__device__ void add_tables(const CausalLaunch<real_t<T>>& p, const CausalGradients<T>& to, std::int64_t block) {
  using R = real_t<T>;
  __shared__ R sm_sums[kSumWarps][kWarp];
  const CausalLane me;
  const std::int64_t size = (p.last + 1) * p.columns, wanted = block * kWarp + me.lane;
  const std::int64_t e = wanted < 2 * size ? wanted : 2 * size - 1;
  const std::int64_t side = e / size, row = e % size / p.columns, head = e % p.columns / p.width;
  R* out = side == 0 ? to.dkeys : to.dvalues;
  const TableSums table(p.last, p.width);
  const R* part =
      to.partials + head * table.size() + (side * table.rows + row) * table.stride + e % p.columns % p.width;
  const std::uint8_t* written = to.written + (head * table.rows + row) * to.table_blocks;
  R sum = 0;
#pragma unroll 4
  for (std::int64_t b = me.warp; b < to.table_blocks; b += kSumWarps)
    if (written[b] != 0) sum += part[b * p.heads * table.size()];
  sm_sums[me.warp][me.lane] = sum;
  __syncthreads();
  if (me.warp != 0 || wanted >= 2 * size) return;
  for (int w = 1; w < kSumWarps; ++w) sum += sm_sums[w][me.lane];
  out[e % size] += to.table_scale * sum;
}

/// Sums over the first kernel's results. A block has 32 keys of one head of one sequence and computes dk (even blocks)
/// or dv, a warp for each 4 keys, over tiles of 32 queries in ascending order; the halves of a warp alternate over
/// queries. The keys with most queries come first. Further blocks add the partial sums of the tables' gradients. Bound
/// by the traffic of the partial sums.
template <class T, int kChunks>
__global__ void __launch_bounds__(kWarp* kSumWarps, sizeof(real_t<T>) == 4 ? 3 : 1)
    causal_backward_sums_kernel(gpu::Earlier earlier, CausalLaunch<real_t<T>> p, CausalGradients<T> to,
                                PairWeights<real_t<T>> weights, std::int64_t key_blocks, const T* __restrict__ dy,
                                const T* __restrict__ q) {
  earlier.wait();
  using R = real_t<T>;
  constexpr int kChannels = 4 * kChunks, kGroup = kKeys / kSumWarps;
  if (p.behind()) {
    if (to.add_dkv) return;
    p.fill_behind(to.dk, p.kv_stride);
    return p.fill_behind(to.dv, p.kv_stride);
  }
  if (blockIdx.x >= key_blocks) return add_tables(p, to, blockIdx.x - key_blocks);
  const std::int64_t item = blockIdx.x / 2, sequence = item / p.heads % p.sequences;
  const std::int64_t tile = item / p.heads / p.sequences * kKeys;
  const int head = static_cast<int>(item % p.heads);
  const bool values = blockIdx.x % 2 != 0;
  T* const out = values ? to.dv : to.dk;
  const CausalHead<R> h(p, sequence, head);
  if (tile >= h.length) return;
  const CausalLane me;
  const int stride = tile_stride(p.width), in_table = table_stride(p.width);
  R *const sm_x = reinterpret_cast<R*>(sm_bytes), *const sm_weights = sm_x + kKeys * stride;
  const T* const x = values ? dy + h.at(p, head, p.columns) : q + h.at(p, head, p.stride);
  const std::int64_t apart = values ? p.columns : p.stride;
  const R* const of_pairs = values ? weights.p : weights.ds;

  R sums[kGroup][kChannels] = {};
  const std::int64_t from = h.first_query > tile ? h.first_query : tile;
  for (std::int64_t top = from / kKeys * kKeys; top < h.length; top += kKeys) {
    __syncthreads();  // the previous tiles are no longer in use
    load_tile(me, sm_x, x + top * apart, kKeys, h.length - top, apart, p.width);
    for (int r = me.warp; r < kKeys; r += kSumWarps) {
      const std::int64_t i = top + r, row = (h.base + i) * p.heads + head;
      sm_weights[r * kKeys + me.lane] = h.is_query(i) ? of_pairs[row * weights.keys + tile + me.lane] : R{0};
    }
    __syncthreads();
    const int count = static_cast<int>(h.length - top < kKeys ? h.length - top : kKeys);
#pragma unroll 2
    for (int r = me.half; r < count; r += 2) {
      const R* const w = sm_weights + r * kKeys + me.warp * kGroup;
#pragma unroll
      for (int m = 0; m < kChunks; ++m) {
        const int c = kChunkChannels * m + me.channel;
        if (c >= in_table) continue;
        const Four<R> a = four(sm_x + r * stride + c);
#pragma unroll
        for (int n = 0; n < kGroup; ++n)
#pragma unroll
          for (int k = 0; k < 4; ++k) sums[n][4 * m + k] += w[n] * a.at[k];
      }
    }
  }
  join_halves(sums);
#pragma unroll
  for (int n = 0; n < kGroup; ++n) {
    const std::int64_t j = tile + me.warp * kGroup + n;
    if (j >= h.length) break;
    if (me.half != n % 2) continue;
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      const int channel = kChunkChannels * (c / 4) + me.channel + c % 4;
      if (channel >= p.width) continue;
      store(out + h.at(p, head, p.kv_stride) + j * p.kv_stride + channel, sums[n][c], to.add_dkv != 0);
    }
  }
}

}  // namespace

template <class T>
void causal_attention_backward(const Stream& stream, const CausalRows<T>& dx, bool add_dq, bool add_dkv,
                               real_t<T>* dkeys, real_t<T>* dvalues, const T* dy, const T* y,
                               const CausalRows<const T>& x, const real_t<T>* logsum, std::int64_t columns,
                               const CausalAttention& a, const TimeBuckets& time) {
  using R = real_t<T>;
  const CausalPlan plan = causal_plan<T>(columns, a, time);
  if (plan.sequences == 0) return;
  if (!time) {
    PackedAttention<T> packed = packed_attention_of<T>(plan, x, columns, a);
    packed.dy = dy;
    packed.dq = dx.q;
    packed.dk = dx.k;
    packed.dv = dx.v;
    packed.y = const_cast<T*>(y);  // results of the forward, only read here
    packed.lse = const_cast<R*>(logsum);
    packed.add_dq = add_dq;
    packed.add_dkv = add_dkv;
    return packed_attention_backward(stream, packed, a.rows.rows());
  }
  visit_causal(plan, [&]<int kChunks, Timed kTimed>() {
    using Sm = BackwardTiles<R, kChunks, kTimed>;
    const int width = static_cast<int>(columns / a.heads);
    const std::int64_t tiles = plan.tiles(Sm::kQueries), key_tiles = plan.tiles(kKeys), items = tiles * plan.sequences;
    const std::int64_t blocks = std::min(items, std::max<std::int64_t>(1, kTableBlocks / a.heads));
    const TableSums table(time.keys.rows() - 1, width);
    const std::size_t shared = Sm::bytes(width), with_sums = shared + table.bytes<R>();
    const bool in_shared = with_sums <= gpu::most_shared_bytes(stream);
    const std::int64_t pairs = a.rows.rows() * a.heads * key_tiles * kKeys;
    gpu::ScratchPlan layout;
    layout.add<std::byte>(static_cast<std::int64_t>(plan.tables_bytes + plan.times_bytes));
    const std::int64_t copies = blocks * a.heads, in_memory = in_shared ? 0 : copies;
    const auto partials = layout.add<R>(copies * table.size()), dtables = layout.add<R>(in_memory * table.size());
    const auto written = layout.add<std::uint8_t>(copies * table.rows);
    const auto marks = layout.add<std::uint8_t>(in_memory * table.rows);
    const auto probabilities = layout.add<R>(pairs), gradients = layout.add<R>(pairs);
    std::byte* const scratch = gpu::scratch(stream, layout.size_bytes());
    CausalLaunch<R> p = prepare_causal<T>(stream, plan, scratch, x, columns, a, time);
    p.blocks = blocks;
    const CausalGradients<T> to{.dq = dx.q,
                                .dk = dx.k,
                                .dv = dx.v,
                                .add_dq = add_dq,
                                .add_dkv = add_dkv,
                                .dkeys = dkeys,
                                .dvalues = dvalues,
                                .partials = partials.in(scratch),
                                .written = written.in(scratch),
                                .dtables = in_shared ? nullptr : dtables.in(scratch),
                                .marks = in_shared ? nullptr : marks.in(scratch),
                                .table_blocks = blocks,
                                .table_scale = static_cast<R>(element_scale(time))};
    const PairWeights<R> weights{probabilities.in(scratch), gradients.in(scratch), key_tiles * kKeys};
    launch(stream,
           {.grid = {blocks + blocks_behind(a.rows), p.heads},
            .block = kWarp * kQueryWarps<R, kChunks>,
            .shared_bytes = in_shared ? with_sums : shared,
            .flops = 3 * plan.product_flops},
           causal_backward_queries_kernel<T, kChunks, kTimed>, p, to, weights, tiles, dy, y, x.q, x.k, x.v, logsum,
           Drop<R>(cpu::DropRate(time.dropout.rate)));
    const std::int64_t key_blocks = 2 * plan.sequences * a.heads * key_tiles;
    p.blocks = key_blocks + ceil_div(2 * time.keys.rows() * columns, kWarp);
    launch(stream,
           {.grid = p.blocks + blocks_behind(a.rows),
            .block = kWarp * kSumWarps,
            .shared_bytes = (kKeys * static_cast<std::size_t>(tile_stride(width)) + kKeys * kKeys) * sizeof(R),
            .flops = 2 * plan.product_flops},
           causal_backward_sums_kernel<T, kChunks>, p, to, weights, key_blocks, dy, x.q);
  });
}

LOCKSTEP_EACH_STORAGE(causal_attention_backward)

}  // namespace lockstep::ops::cuda
