#include <algorithm>

#include "causal_attention_kernels.hpp"
#include "causal_attention_launch_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

using namespace gpu;

/// Blocks of a launch that sums gradients of tables, over all heads: two per multiprocessor of the largest GPUs. Each
/// block has its own sums over its sequences, so this number fixes the order of additions on every GPU.
constexpr std::int64_t kTableBlocks = 264;
/// Threads that add to the same column of a table: one to the even buckets, one to the odd ones.
constexpr int kSharers = 2;

/// Shared memory of a block of the backward pass. T: real.
template <class T, int kChunks, Timed kTimed>
struct BackwardTiles {
  T *k, *v, *q, *dy, *p, *ds;  ///< of the block
  T* dtables;                  ///< after the other arrays, if there is space
  TimeTile<kChunks> time;      ///< of the warp
  __host__ __device__ static std::size_t bytes(int warps, int width) {
    const std::size_t queries = static_cast<std::size_t>(warps * kQueries<kChunks, kTimed>);
    // mutant-equivalent: reserves more memory than is used
    return (2 * kKeys + 2 * queries) * static_cast<std::size_t>(tile_stride(width)) * sizeof(T) +
           2 * queries * kKeys * sizeof(T) + time_tile_bytes<kChunks, kTimed>(queries);
  }
  __device__ BackwardTiles(unsigned char* memory, const CausalLane& me, int width) {
    const int stride = tile_stride(width), queries = me.warps * kQueries<kChunks, kTimed>;
    k = reinterpret_cast<T*>(memory);
    v = k + kKeys * stride;
    q = v + kKeys * stride;
    dy = q + queries * stride;
    p = dy + queries * stride;
    ds = p + queries * kKeys;
    time = time_tile<kChunks, kTimed>(reinterpret_cast<unsigned char*>(ds + queries * kKeys), me);
    dtables = reinterpret_cast<T*>(memory + bytes(me.warps, width));
  }
};

/// Layout of the gradients of the tables of one head before they are summed: (2, R + 1, table_stride). The bucket of
/// long times, which most pairs have, uses the last two rows.
struct TableSums {
  std::int64_t rows;
  int stride;
  __host__ __device__ TableSums(std::int64_t last, int width) : rows(last + 2), stride(table_stride(width)) {}
  // mutant-equivalent: reserves more memory than is used
  __host__ __device__ std::int64_t size() const { return 2 * rows * stride; }
};

/// dtable_r(ij) += weight_ij x_i over the pairs of the block's queries [i0, i1) and the tile's keys, for both tables. A
/// thread owns a column and either the even or the odd buckets (for the bucket of long times, either the even or the
/// odd queries), so no two threads add to the same element. Costs one load and one store of shared memory per pair,
/// except for long times.
template <int kChunks, Timed kTimed, class T>
__device__ void add_to_tables(const CausalLaunch<T>& p, const BackwardTiles<T, kChunks, kTimed>& sm,
                              const TimeTile<kChunks>& time, T* dtables, std::int64_t top, int i0, int i1,
                              std::int64_t tile) {
  constexpr int kColumns = kChunks * kChunkChannels;
  const TableSums sums(p.last, p.width);
  const int stride = tile_stride(p.width);
  // mutant-equivalent: 2 + 2 = 2 * 2
  for (int slot = static_cast<int>(threadIdx.x); slot < 2 * kSharers * kColumns; slot += static_cast<int>(blockDim.x)) {
    const int c = slot % kColumns, side = slot / kColumns % 2, sharer = slot / kColumns / 2;
    if (c >= p.width) continue;
    const T *sm_x = side == 0 ? sm.q : sm.dy, *sm_weights = side == 0 ? sm.ds : sm.p;
    T* mine = dtables + side * sums.rows * sums.stride + c;
    const int lane = c % kChunkChannels / 4, bit = 16 * (c / kChunkChannels) + 8 * side + c % 4;
    T far = 0;
    for (int i = i0; i < i1; ++i) {
      const T x = sm_x[i * stride + c];
      // mutant-equivalent: keys beyond the last visible one have weight 0
      const std::int64_t seen = top + i - tile + 1;
      const int keys = seen < kKeys ? static_cast<int>(seen) : kKeys;
      for (int j = 0; j < keys; ++j) {
        const std::int32_t bucket = time.buckets[i * kKeys + j];
        const bool is_far = bucket == p.last;
        if ((is_far ? i : bucket) % kSharers != sharer) continue;
        T weight = sm_weights[i * kKeys + j];
        if constexpr (kTimed == Timed::masked) {
          const std::uint32_t mask = time.masks[(i * (kKeys / 4) + j / 4) * kWarp + 16 * (j / 2 % 2) + lane];
          if ((mask >> (bit + 4 * (j % 2)) & 1u) == 0) weight = 0;
        }
        if (is_far)
          far += weight * x;
        else
          mine[std::int64_t{bucket} * sums.stride] += weight * x;
      }
    }
    mine[(p.last + sharer) * sums.stride] += far;
  }
}

/// Moves the sums of a block to its share of the partial sums, applying the sequence's mask if there is one, and clears
/// them. All threads must call it.
template <class T>
__device__ void flush_tables(const CausalLaunch<T>& p, T* partial, T* dtables, int head, std::int64_t sequence,
                             const Drop<T>& drop, bool first) {
  const TableSums sums(p.last, p.width);
  __syncthreads();
  for (std::int64_t e = threadIdx.x; e < sums.size(); e += blockDim.x) {
    const std::int64_t c = e % sums.stride, row = e / sums.stride % sums.rows;
    T value = dtables[e];
    if (p.tables_apart > 0 && c < p.width)
      value *= table_keep(p, drop, p.samples[sequence], e >= sums.rows * sums.stride ? 1 : 0,
                          row < p.last ? row : p.last, std::int64_t{head} * p.width + c);
    partial[e] = first ? value : partial[e] + value;
    dtables[e] = 0;
  }
  __syncthreads();
}

/// The destinations of the gradients; null: not computed.
template <class T>
struct CausalGradients {
  T *dq, *dk, *dv;
  std::int64_t add_dq, add_dk, add_dv;  ///< not 0: add; see ColumnSums::accumulate
  real_t<T>* partials;                  ///< (blocks, heads) of TableSums
  real_t<T>* dtables;                   ///< null: shared memory has space for a block's sums
};

/// A block works on one head of one sequence after another. Its queries stay in shared memory and tiles of 32 keys are
/// processed in turn. Probabilities P are recomputed from logsum, dS from P, the product dP and the row sums D_i = dy_i
/// y_i; dq stays in registers. Then each warp takes a few keys, sums dk and dv over the block's queries and stores or
/// adds them. Only this block writes these rows, in a fixed order. Each pair costs five products of head width; masks
/// are drawn once. Bound by FMAs and shared memory; with times, by the sums of table rows.
template <class T, int kChunks, Timed kTimed>
__global__ void __launch_bounds__(kWarp* kMostWarps, 1)
    causal_backward_kernel(CausalLaunch<real_t<T>> p, CausalGradients<T> to, const T* __restrict__ dy,
                           const T* __restrict__ y, const T* __restrict__ q, const T* __restrict__ k,
                           const T* __restrict__ v, const real_t<T>* __restrict__ logsum, Drop<real_t<T>> table_drop) {
  using R = real_t<T>;
  constexpr int kRows = kQueries<kChunks, kTimed>;
  constexpr int kChannels = 4 * kChunks;
  constexpr int kKeyGroup = kChunks == 1 ? 4 : 2;  // keys of a warp at once
  if (p.behind()) {
    if (to.dq != nullptr && !to.add_dq) p.fill_behind(to.dq, p.stride);
    if (to.dk != nullptr && !to.add_dk) p.fill_behind(to.dk, p.kv_stride);
    if (to.dv != nullptr && !to.add_dv) p.fill_behind(to.dv, p.kv_stride);
    return;
  }
  const CausalLane me;
  const int head = static_cast<int>(blockIdx.y);
  const BackwardTiles<R, kChunks, kTimed> sm(sm_bytes, me, p.width);
  const int stride = tile_stride(p.width), in_table = table_stride(p.width);
  // The warp's rows of the shared arrays.
  R *const my_q = sm.q + me.warp * kRows * stride, *const my_dy = sm.dy + me.warp * kRows * stride;
  R *const my_p = sm.p + me.warp * kRows * kKeys, *const my_ds = sm.ds + me.warp * kRows * kKeys;
  // Shared by the whole block.
  TimeTile<kChunks> block_time = sm.time;
  R *dtables = nullptr, *partial = nullptr;
  if constexpr (kTimed != Timed::no) {
    block_time.buckets -= me.warp * kRows * kKeys;
    block_time.masks -= me.warp * kRows * (kKeys / 4) * kWarp;
    if (to.partials != nullptr) {
      const std::int64_t size = TableSums(p.last, p.width).size();
      const std::int64_t mine = (std::int64_t{blockIdx.x} * p.heads + head) * size;
      partial = to.partials + mine;
      dtables = to.dtables != nullptr ? to.dtables + mine : sm.dtables;
      for (std::int64_t e = threadIdx.x; e < size; e += blockDim.x) dtables[e] = 0;
    }
  }
  const R none = -infinity<R>();
  const std::int64_t step = std::int64_t{me.warps} * kRows;

  for (std::int64_t sequence = blockIdx.x; sequence < p.sequences; sequence += p.blocks) {
    const CausalHead<R> h(p, sequence, head);
    const std::int64_t at = h.at(p, head, p.columns), q_at = h.at(p, head, p.stride);
    const std::int64_t kv_at = h.at(p, head, p.kv_stride);
    const auto zero = [&](T* rows, std::int64_t apart, std::int64_t add, std::int64_t count) {
      if (rows == nullptr || add != 0) return;
      for (std::int64_t row = me.warp; row < count; row += me.warps)
        for (int c = me.lane; c < p.width; c += kWarp) store(rows + h.at(p, head, apart) + row * apart + c, R{0});
    };
    zero(to.dq, p.stride, to.add_dq, h.first_query < h.length ? h.first_query : h.length);
    if (h.first_query >= h.length) {  // no queries
      zero(to.dk, p.kv_stride, to.add_dk, h.length);
      zero(to.dv, p.kv_stride, to.add_dv, h.length);
    }
    for (std::int64_t top = h.first_query; top < h.length; top += step) {
      const std::int64_t first = top + std::int64_t{me.warp} * kRows;
      __syncthreads();
      load_tile(me, sm.q, q + q_at + top * p.stride, static_cast<int>(step), h.length - top, p.stride, p.width);
      load_tile(me, sm.dy, dy + at + top * p.columns, static_cast<int>(step), h.length - top, p.columns, p.width);
      R dq[kRows][kChannels] = {}, lse[kRows], mean[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const std::int64_t i = first + r;
        R product = 0;
        if (i < h.length)
          for (int c = me.lane; c < p.width; c += kWarp)
            product += load(dy + at + i * p.columns + c) * load(y + at + i * p.columns + c);
        mean[r] = warp_reduce(product);
        lse[r] = i < h.length ? logsum[(h.base + i) * p.heads + head] : R{0};
      }

      // mutant-equivalent: keys beyond the last visible one have weight 0
      const std::int64_t end = p.filled() || top + step > h.length ? h.length : top + step;
      for (std::int64_t tile = 0; tile < end; tile += kKeys) {
        __syncthreads();
        load_tile(me, sm.k, k + kv_at + tile * p.kv_stride, kKeys, h.length - tile, p.kv_stride, p.width);
        load_tile(me, sm.v, v + kv_at + tile * p.kv_stride, kKeys, h.length - tile, p.kv_stride, p.width);
        __syncthreads();
        if (first < h.length && (p.filled() || tile < first + kRows)) {
          const std::int64_t key = tile + me.lane;
          R s[kRows] = {}, dp[kRows] = {}, keep[kRows];
          add_scores(s, my_q, sm.k, me.lane, p.width);
          add_scores(dp, my_dy, sm.v, me.lane, p.width);
          if constexpr (kTimed != Timed::no)
            time_products<kChunks, kTimed, true>(p, h, me, sm.time, my_ds, my_p, my_q, my_dy, first, tile);
          if (p.drops()) draw_keeps(keep, p, h.draws, me, first, tile);
#pragma unroll
          for (int r = 0; r < kRows; ++r) {
            const std::int64_t i = first + r;
            if constexpr (kTimed != Timed::no) {
              s[r] += key <= i ? my_ds[r * kKeys + me.lane] : R{0};
              dp[r] += key <= i ? my_p[r * kKeys + me.lane] : R{0};
            }
            s[r] = key <= i ? s[r] * p.scale : p.filled() ? p.fill : none;
            if (i >= h.length || key >= h.length) s[r] = none;
            const R probability = s[r] == none ? R{0} : exp(s[r] - lse[r]), kept = p.drops() ? keep[r] : R{1};
            my_p[r * kKeys + me.lane] = probability * kept;
            my_ds[r * kKeys + me.lane] =
                key <= i ? probability * (dp[r] * kept - mean[r]) * p.scale : R{0};  // a fill has no gradient
          }
          __syncwarp();
          // mutant-equivalent: keys beyond the last visible one have weight 0
          const std::int64_t seen = first + kRows - tile;
          if (to.dq != nullptr && seen > 0)
            add_weighted<kChunks, kTimed>(dq, p, me, my_ds, sm.k, h.keys, 0, sm.time,
                                          static_cast<int>(seen < kKeys ? seen : kKeys));
        }
        __syncthreads();

        // Queries of the block, by their index in it, that see a key of the tile.
        const int i0 = p.filled() || tile < top ? 0 : static_cast<int>(tile - top);
        const int i1 = static_cast<int>(step < h.length - top ? step : h.length - top);
        if (to.dk != nullptr || to.dv != nullptr) {
          for (int j = me.warp * kKeyGroup; j < kKeys; j += me.warps * kKeyGroup) {
            R dk[kKeyGroup][kChannels] = {}, dv[kKeyGroup][kChannels] = {};
#pragma unroll 1
            for (int i = i0 + me.half; i < i1; i += 2)
#pragma unroll
              for (int m = 0; m < kChunks; ++m) {
                const int c = kChunkChannels * m + me.channel;
                if (c >= in_table) continue;
                const Four<R> a = four(sm.q + i * stride + c), b = four(sm.dy + i * stride + c);
#pragma unroll
                for (int n = 0; n < kKeyGroup; ++n) {
                  const R ds = sm.ds[i * kKeys + j + n], probability = sm.p[i * kKeys + j + n];
#pragma unroll
                  for (int x = 0; x < 4; ++x) {
                    dk[n][4 * m + x] += ds * a.at[x];
                    dv[n][4 * m + x] += probability * b.at[x];
                  }
                }
              }
            join_halves(dk);
            join_halves(dv);
            T* const into = me.half == 0 ? to.dk : to.dv;
            if (into == nullptr) continue;
            // The first queries that meet a tile of keys store its gradients, later ones add.
            const bool later = top != h.first_query && (p.filled() || tile < top);
            const bool add = later || (me.half == 0 ? to.add_dk : to.add_dv) != 0;
#pragma unroll
            for (int n = 0; n < kKeyGroup; ++n) {
              if (tile + j + n >= h.length) break;
#pragma unroll
              for (int c = 0; c < kChannels; ++c) {
                const int channel = kChunkChannels * (c / 4) + me.channel + c % 4;
                if (channel >= p.width) continue;
                store(into + kv_at + (tile + j + n) * p.kv_stride + channel, me.half == 0 ? dk[n][c] : dv[n][c], add);
              }
            }
          }
        }
        if constexpr (kTimed != Timed::no)
          if (dtables != nullptr) add_to_tables<kChunks, kTimed>(p, sm, block_time, dtables, top, i0, i1, tile);
      }

      if (to.dq == nullptr) continue;
      join_halves(dq);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const std::int64_t i = first + r;
        if (i >= h.length) break;
        if (me.half != r % 2) continue;  // mutant-equivalent: both halves hold the sums
#pragma unroll
        for (int c = 0; c < kChannels; ++c) {
          const int channel = kChunkChannels * (c / 4) + me.channel + c % 4;
          if (channel >= p.width) continue;
          store(to.dq + q_at + i * p.stride + channel, dq[r][c], to.add_dq != 0);
        }
      }
    }
    if (dtables != nullptr && p.tables_apart > 0)
      flush_tables(p, partial, dtables, head, sequence, table_drop, sequence == blockIdx.x);
  }
  if (dtables != nullptr && p.tables_apart == 0) flush_tables(p, partial, dtables, head, 0, table_drop, true);
}

/// Warps that share the sum of an element, so that a thread waits for an eighth of the loads.
constexpr int kTableWarps = 8;

/// dkeys, dvalues (R, C) += scale times the sum of the blocks' partial sums. A block has 32 elements, a lane for each;
/// warp w adds the partial sums of blocks w, w + 8, ..., and the first warp adds the sums of the warps. Memory bound.
template <class T>
__global__ void __launch_bounds__(kWarp* kTableWarps)
    add_tables_kernel(CausalLaunch<T> p, std::int64_t blocks, T scale, T* __restrict__ dkeys, T* __restrict__ dvalues,
                      const T* __restrict__ partials) {
  __shared__ T sm_sums[kTableWarps][kWarp];
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const std::int64_t size = (p.last + 1) * p.columns, wanted = std::int64_t{blockIdx.x} * kWarp + lane;
  // mutant-equivalent: lanes without an element read any
  const std::int64_t e = wanted < 2 * size ? wanted : 2 * size - 1;
  const std::int64_t side = e / size, r = e % size / p.columns, head = e % p.columns / p.width,
                     c = e % p.columns % p.width;
  T* out = side == 0 ? dkeys : dvalues;
  const TableSums sums(p.last, p.width);
  const std::int64_t at = (side * sums.rows + r) * sums.stride + c;
  T sum = 0;
#pragma unroll 4
  for (std::int64_t block = warp; block < blocks; block += kTableWarps) {
    const T* part = partials + (block * p.heads + head) * sums.size() + at;
    sum += part[0];
    if (r == p.last) sum += part[sums.stride];
  }
  sm_sums[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || wanted >= 2 * size || out == nullptr) return;
  for (int w = 1; w < kTableWarps; ++w) sum += sm_sums[w][lane];
  out[e % size] += scale * sum;
}

}  // namespace

template <class T>
void causal_attention_backward(const Stream& stream, const CausalRows<T>& dx, const bool (&add)[3], real_t<T>* dkeys,
                               real_t<T>* dvalues, const T* dy, const T* y, const CausalRows<const T>& x,
                               const real_t<T>* logsum, std::int64_t columns, const CausalAttention& a,
                               const TimeBuckets& time) {
  using R = real_t<T>;
  const CausalPlan plan = causal_plan<T>(columns, a, time);
  if (plan.sequences == 0) return;
  if (plan.timed == Timed::no) {
    PackedAttention<T> packed = packed_attention_of<T>(plan, x, columns, a);
    packed.dy = dy;
    packed.dq = dx.q;
    packed.dk = dx.k;
    packed.dv = dx.v;
    packed.y = const_cast<T*>(y);  // results of the forward, only read here
    packed.lse = const_cast<R*>(logsum);
    packed.add_dq = add[0];
    packed.add_dk = add[1];
    packed.add_dv = add[2];
    return packed_attention_backward(stream, packed, a.rows.rows());
  }
  const bool tables = dkeys != nullptr || dvalues != nullptr;
  const std::int64_t blocks =
      tables ? std::min(plan.sequences, std::max<std::int64_t>(1, kTableBlocks / a.heads)) : plan.sequences;
  visit_causal(plan, [&]<int kChunks, Timed kTimed>() {
    const int width = static_cast<int>(columns / a.heads), warps = plan.warps<kQueries<kChunks, kTimed>>();
    std::size_t shared = BackwardTiles<R, kChunks, kTimed>::bytes(warps, width), partials_bytes = 0;
    bool in_shared = true;
    if (tables) {
      const std::size_t sums = static_cast<std::size_t>(TableSums(time.keys.rows() - 1, width).size()) * sizeof(R);
      partials_bytes = static_cast<std::size_t>(blocks * a.heads) * sums;
      in_shared = shared + sums <= gpu::most_shared_bytes(stream);
      if (in_shared) shared += sums;
    }
    std::byte* scratch =
        gpu::scratch(stream, plan.tables_bytes + plan.times_bytes + (in_shared ? 1 : 2) * partials_bytes);
    CausalLaunch<R> p = prepare_causal<T>(stream, plan, scratch, x, columns, a, time);
    p.blocks = blocks;
    CausalGradients<T> to{dx.q, dx.k, dx.v, add[0], add[1], add[2], nullptr, nullptr};
    if (tables) {
      to.partials = reinterpret_cast<R*>(scratch + plan.tables_bytes + plan.times_bytes);
      if (!in_shared) to.dtables = to.partials + partials_bytes / sizeof(R);
    }
    launch(stream,
           {.grid = {blocks + blocks_behind(a.rows), p.heads},
            .block = kWarp * warps,
            .shared_bytes = shared,
            .flops = 5 * plan.product_flops},
           causal_backward_kernel<T, kChunks, kTimed>, p, to, dy, y, x.q, x.k, x.v, logsum,
           Drop<R>(cpu::DropRate(time.dropout.rate)));
    if (tables)
      launch(stream, {.grid = ceil_div(2 * time.keys.rows() * columns, kWarp), .block = {kWarp, kTableWarps}},
             add_tables_kernel<R>, p, blocks, static_cast<R>(element_scale(time)), dkeys, dvalues,
             static_cast<const R*>(to.partials));
  });
}

LOCKSTEP_EACH_STORAGE(causal_attention_backward)

}  // namespace lockstep::ops::cuda
