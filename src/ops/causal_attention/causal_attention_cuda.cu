#include "causal_attention_kernels.hpp"
#include "causal_attention_launch_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

using namespace gpu;

constexpr int kForwardWarps = 8;
template <class R, int kChunks, Timed kTimed>
using ForwardTiles = Tiles<R, kChunks, kTimed, kForwardWarps, false>;

/// One block per (sequence, head, 16 queries); the queries with most keys come first. Keys and values are processed in
/// tiles of 32. Each warp keeps its queries' largest scores, sums and results in registers and rescales them when a
/// larger score appears (softmax in one pass). Reads q once, and k, v once for every 16 queries; the sequence stays in
/// L2, and tables come through L1. Sums over keys run in ascending order of tiles. Bound by instructions: with element
/// masks, by Philox, 10 rounds for 16 masks.
template <class T, int kChunks, Timed kTimed>
__global__ void __launch_bounds__(kWarp* kForwardWarps, sizeof(real_t<T>) == 4 ? 3 : 1)
    causal_forward_kernel(gpu::Earlier earlier, CausalLaunch<real_t<T>> p, T* __restrict__ y,
                          real_t<T>* __restrict__ logsum, const T* __restrict__ q, const T* __restrict__ k,
                          const T* __restrict__ v) {
  earlier.wait();
  using R = real_t<T>;
  using Sm = ForwardTiles<R, kChunks, kTimed>;
  constexpr int kChannels = 4 * kChunks;
  if (p.behind()) return p.fill_behind(y, p.columns);
  const CausalLane me;
  const int head = static_cast<int>(blockIdx.y);
  CausalHead<R> h(p, blockIdx.x, head);
  const std::int64_t top = h.first_of_tile(blockIdx.z, Sm::kQueries), first = top + me.warp * kRows;
  if (h.length <= 0) return;
  const std::int64_t at = h.at(p, head, p.columns), q_at = h.at(p, head, p.stride), kv_at = h.at(p, head, p.kv_stride);
  const Sm block(sm_bytes, p.width), sm = block.of_warp(me.warp, p.width);
  const R none = -infinity<R>();

  load_tile(me, block.q, q + q_at + top * p.stride, Sm::kQueries, h.length - top, p.stride, p.width);
  R out[kRows][kChannels] = {}, largest[kRows], sum[kRows] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) largest[r] = none;

  const std::int64_t end = h.length > h.first_query ? h.length : 0;
  for (std::int64_t tile = 0; tile < end; tile += kKeys) {
    __syncthreads();  // the previous keys are no longer in use
    load_tile(me, sm.k, k + kv_at + tile * p.kv_stride, kKeys, h.length - tile, p.kv_stride, p.width);
    load_tile(me, sm.v, v + kv_at + tile * p.kv_stride, kKeys, h.length - tile, p.kv_stride, p.width);
    __syncthreads();
    if (first >= h.length || tile >= first + kRows) continue;

    const std::int64_t key = tile + me.lane;
    R s[kRows] = {};
    add_scores(s, sm.q, sm.k, me.lane, p.width);
    time_products<kChunks, kTimed, false>(p, h, me, sm.time, sm.p, static_cast<R*>(nullptr), sm.q,
                                          static_cast<const R*>(nullptr), first, tile);
    R keep[kRows];
    if (p.drops()) draw_keeps(keep, p, h.draws, me, first, tile);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t i = first + r;
      s[r] += key <= i && h.is_query(i) ? sm.p[r * kKeys + me.lane] : R{0};
      s[r] = key <= i && key < h.length ? s[r] * p.scale : none;
      const R before = largest[r];
      largest[r] = warp_reduce(s[r] > before ? s[r] : before, Max{});
      const R shrink = exp(before - largest[r]), e = s[r] == none ? R{0} : exp(s[r] - largest[r]);
      sum[r] = sum[r] * shrink + warp_reduce(e);
#pragma unroll
      for (int c = 0; c < kChannels; ++c) out[r][c] *= shrink;
      sm.p[r * kKeys + me.lane] = p.drops() ? e * keep[r] : e;
    }
    __syncwarp();
    const std::int64_t seen = first + kRows - tile;
    add_weighted<kChunks, kTimed>(out, p, me, sm.p, sm.v, h.values, 1, sm.time,
                                  static_cast<int>(seen < kKeys ? seen : kKeys));
  }

  join_halves(out);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const std::int64_t i = first + r;
    if (i >= h.length) break;
    const bool is_query = h.is_query(i);
    if (logsum != nullptr && me.lane == 0 && is_query)
      logsum[(h.base + i) * p.heads + head] = largest[r] + static_cast<R>(log(static_cast<double>(sum[r])));
    if (me.half != r) continue;
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      const int channel = kChunkChannels * (c / 4) + me.channel + c % 4;
      if (channel < p.width) store(y + at + i * p.columns + channel, is_query ? out[r][c] / sum[r] : R{0});
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
  if (!time) {
    PackedAttention<T> packed = packed_attention_of<T>(plan, x, columns, a);
    packed.y = y;
    packed.lse = logsum;
    return packed_attention_forward(stream, packed);
  }
  std::byte* scratch = gpu::scratch(stream, plan.tables_bytes + plan.times_bytes);
  const CausalLaunch<R> p = prepare_causal<T>(stream, plan, scratch, x, columns, a, time);
  visit_causal(plan, [&]<int kChunks, Timed kTimed>() {
    using Sm = ForwardTiles<R, kChunks, kTimed>;
    launch(stream,
           {.grid = {p.blocks + blocks_behind(a.rows), p.heads, plan.tiles(Sm::kQueries)},
            .block = kWarp * kForwardWarps,
            .shared_bytes = Sm::bytes(p.width),
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
