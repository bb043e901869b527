#include "causal_attention_kernels.hpp"
#include "causal_attention_launch_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

using namespace gpu;

/// Shared memory of a block of the forward pass. T: real.
template <class T, int kChunks, Timed kTimed>
struct ForwardTiles {
  T *k, *v, *q, *p;
  TimeTile<kChunks> time;
  __host__ __device__ static std::size_t bytes(int warps, int width) {
    const std::size_t queries = static_cast<std::size_t>(warps * kQueries<kChunks, kTimed>);
    return (2 * kKeys + queries) * static_cast<std::size_t>(tile_stride(width)) * sizeof(T) +
           queries * kKeys * sizeof(T) + time_tile_bytes<kChunks, kTimed>(queries);
  }
  /// A view with the warp's own share of q, p and time.
  __device__ ForwardTiles(unsigned char* memory, const CausalLane& me, int width) {
    constexpr int kRows = kQueries<kChunks, kTimed>;
    const int stride = tile_stride(width), queries = me.warps * kRows;
    k = reinterpret_cast<T*>(memory);
    v = k + kKeys * stride;
    q = v + kKeys * stride;
    p = q + queries * stride;
    time = time_tile<kChunks, kTimed>(reinterpret_cast<unsigned char*>(p + queries * kKeys), me);
    q += me.warp * kRows * stride;
    p += me.warp * kRows * kKeys;
  }
};

/// One block per (sequence, head). Keys and values are processed in tiles of 32. Each warp keeps its queries' largest
/// scores, sums and results in registers and rescales them when a larger score appears (softmax in one pass). Reads q
/// once, and k, v once for every 8 warps of queries; the sequence stays in L2, and tables come through L1. Sums over
/// keys run in ascending order of tiles. Bound by FMAs and, with element masks, by Philox: 10 rounds for 16 masks.
template <class T, int kChunks, Timed kTimed>
__global__ void __launch_bounds__(kWarp* kMostWarps, sizeof(real_t<T>) == 4 ? 2 : 1)
    causal_forward_kernel(CausalLaunch<real_t<T>> p, T* __restrict__ y, real_t<T>* __restrict__ logsum,
                          const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v) {
  using R = real_t<T>;
  constexpr int kRows = kQueries<kChunks, kTimed>;
  constexpr int kChannels = 4 * kChunks;
  const CausalLane me;
  const int head = static_cast<int>(blockIdx.y);
  if (p.behind()) return p.fill_behind(y, p.columns);
  const CausalHead<R> h(p, blockIdx.x, head);
  const std::int64_t at = h.at(p, head, p.columns), q_at = h.at(p, head, p.stride), kv_at = h.at(p, head, p.kv_stride);
  const ForwardTiles<R, kChunks, kTimed> sm(sm_bytes, me, p.width);
  const R none = -infinity<R>();

  for (std::int64_t row = me.warp; row < h.first_query; row += me.warps)
    for (int c = me.lane; c < p.width; c += kWarp) store(y + at + row * p.columns + c, R{0});

  // mutant-equivalent: an element computed twice gets the same value
  const std::int64_t step = std::int64_t{me.warps} * kRows;
  for (std::int64_t top = h.first_query; top < h.length; top += step) {
    const std::int64_t first = top + std::int64_t{me.warp} * kRows;
    __syncthreads();  // the previous queries' tiles are no longer in use
    load_tile(me, sm.q - me.warp * kRows * tile_stride(p.width), q + q_at + top * p.stride, static_cast<int>(step),
              h.length - top, p.stride, p.width);
    R out[kRows][kChannels] = {}, largest[kRows], sum[kRows] = {};
#pragma unroll
    for (int r = 0; r < kRows; ++r) largest[r] = none;

    // mutant-equivalent: keys beyond the last visible one have weight 0
    const std::int64_t end = p.filled() || top + step > h.length ? h.length : top + step;
    for (std::int64_t tile = 0; tile < end; tile += kKeys) {
      __syncthreads();
      load_tile(me, sm.k, k + kv_at + tile * p.kv_stride, kKeys, h.length - tile, p.kv_stride, p.width);
      load_tile(me, sm.v, v + kv_at + tile * p.kv_stride, kKeys, h.length - tile, p.kv_stride, p.width);
      __syncthreads();
      if (first >= h.length || (!p.filled() && tile >= first + kRows)) continue;

      const std::int64_t key = tile + me.lane;
      R s[kRows] = {};
      add_scores(s, sm.q, sm.k, me.lane, p.width);
      if constexpr (kTimed != Timed::no)
        time_products<kChunks, kTimed, false>(p, h, me, sm.time, sm.p, static_cast<R*>(nullptr), sm.q,
                                              static_cast<const R*>(nullptr), first, tile);
      R keep[kRows];
      if (p.drops()) draw_keeps(keep, p, h.draws, me, first, tile);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const std::int64_t i = first + r;
        if constexpr (kTimed != Timed::no) s[r] += key <= i ? sm.p[r * kKeys + me.lane] : R{0};
        s[r] = key <= i ? s[r] * p.scale : p.filled() ? p.fill : none;
        if (key >= h.length) s[r] = none;
        const R before = largest[r];
        largest[r] = warp_reduce(s[r] > before ? s[r] : before, Max{});
        const R shrink = exp(before - largest[r]), e = s[r] == none ? R{0} : exp(s[r] - largest[r]);
        sum[r] = sum[r] * shrink + warp_reduce(e);
#pragma unroll
        for (int c = 0; c < kChannels; ++c) out[r][c] *= shrink;
        sm.p[r * kKeys + me.lane] = p.drops() ? e * keep[r] : e;
      }
      __syncwarp();
      // mutant-equivalent: keys beyond the last visible one have weight 0
      const std::int64_t seen = (p.filled() ? h.length : first + kRows) - tile;
      add_weighted<kChunks, kTimed>(out, p, me, sm.p, sm.v, h.values, 1, sm.time,
                                    static_cast<int>(seen < kKeys ? seen : kKeys));
      __syncwarp();
    }

    join_halves(out);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t i = first + r;
      if (i >= h.length) break;
      if (logsum != nullptr && me.lane == 0)
        logsum[(h.base + i) * p.heads + head] = largest[r] + static_cast<R>(log(static_cast<double>(sum[r])));
      if (me.half != r % 2) continue;
#pragma unroll
      for (int c = 0; c < kChannels; ++c) {
        const int channel = kChunkChannels * (c / 4) + me.channel + c % 4;
        if (channel < p.width) store(y + at + i * p.columns + channel, out[r][c] / sum[r]);
      }
    }
  }
}

}  // namespace

template <class T>
void causal_attention_forward(const Stream& stream, T* y, real_t<T>* logsum, const CausalRows<const T>& x,
                              std::int64_t columns, const CausalAttention& a, const TimeBuckets& time) {
  using R = real_t<T>;
  const CausalPlan plan = causal_plan<T>(columns, a, time);
  if (plan.sequences == 0) return;
  if (plan.timed == Timed::no) {
    PackedAttention<T> packed = packed_attention_of<T>(plan, x, columns, a);
    packed.y = y;
    packed.lse = logsum;
    return packed_attention_forward(stream, packed);
  }
  std::byte* scratch = gpu::scratch(stream, plan.tables_bytes + plan.times_bytes);
  const CausalLaunch<R> p = prepare_causal<T>(stream, plan, scratch, x, columns, a, time);
  visit_causal(plan, [&]<int kChunks, Timed kTimed>() {
    const int warps = plan.warps<kQueries<kChunks, kTimed>>();
    launch(stream,
           {.grid = {p.blocks + blocks_behind(a.rows), p.heads},
            .block = kWarp * warps,
            .shared_bytes = ForwardTiles<R, kChunks, kTimed>::bytes(warps, p.width),
            .flops = 2 * plan.product_flops},
           causal_forward_kernel<T, kChunks, kTimed>, p, y, logsum, x.q, x.k, x.v);
  });
}

std::int64_t prepared_times_size(std::int64_t columns, const CausalAttention& a, const TimeBuckets& time) {
  return tables_size(columns, a, time);
}

template <class T>
void prepare_times(const Stream& stream, real_t<T>* prepared, std::int64_t columns, const CausalAttention& a,
                   const TimeBuckets& time) {
  if (a.rows.count() == 0) return;
  write_tables<T>(stream, causal_launch<T>({}, columns, a, time), prepared, tables_size(columns, a, time), time);
}

LOCKSTEP_EACH_STORAGE(causal_attention_forward, prepare_times)

}  // namespace lockstep::ops::cuda
