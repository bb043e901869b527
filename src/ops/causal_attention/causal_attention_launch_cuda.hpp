#pragma once
#include <algorithm>
#include <cmath>

#include "causal_attention_tiles_cuda.hpp"
#include "lockstep/device/cuda_scratch.hpp"
#include "ops/attention/packed_attention_cuda.hpp"

/// The host side of the launches of causal attention on a GPU.
namespace lockstep::gpu {

/// Values that follow from the shapes.
struct CausalPlan {
  std::int64_t sequences, longest;
  int chunks;
  Timed timed;
  std::size_t tables_bytes = 0, times_bytes = 0;  ///< of scratch memory, for prepare_causal
  double product_flops = 0;                       ///< of queries with their keys, or of weights with values
  /// Tiles of `rows` rows of the longest sequence; at least one, for launches that also fill rows after the sequences.
  std::int64_t tiles(std::int64_t rows) const { return std::max<std::int64_t>(1, ceil_div(longest, rows)); }
};

/// Whether each sequence has its own masked copy of the tables.
inline bool tables_per_sequence(const TimeBuckets& time) {
  return time && time.dropout && time.drop == TimeBuckets::Drop::table;
}

/// Elements of the tables of all sequences.
inline std::int64_t tables_size(std::int64_t columns, const CausalAttention& a, const TimeBuckets& time) {
  const std::int64_t copies = tables_per_sequence(time) ? a.rows.count() : 1;
  return copies * 2 * a.heads * time.keys.rows() * table_stride(static_cast<int>(columns / a.heads));
}

/// errors   Error if a head is wider than a warp's registers hold
template <class T>
CausalPlan causal_plan(std::int64_t columns, const CausalAttention& a, const TimeBuckets& time) {
  const std::int64_t width = columns / a.heads;
  require(width <= kMostChunks * kChunkChannels, "causal_attention: heads of ", width, " channels: on a GPU at most ",
          kMostChunks * kChunkChannels, "; use more heads");
  CausalPlan plan{.sequences = a.rows.count(),
                  .longest = a.rows.longest_sample(),
                  .chunks = width <= kChunkChannels ? 1 : 2,
                  .timed = time.dropout && time.drop == TimeBuckets::Drop::element ? Timed::masked : Timed::whole};
  std::int64_t pairs = a.pairs;
  for (std::size_t b = 0; a.pairs == 0 && b < a.rows.samples.size(); ++b) {
    const std::int64_t length = a.rows.offsets[b + 1] - a.rows.offsets[b];
    pairs += length * (length + 1) / 2;
  }
  plan.product_flops = 2 * static_cast<double>(pairs * columns);
  if (time) {
    if (!time.prepared) plan.tables_bytes = static_cast<std::size_t>(tables_size(columns, a, time)) * sizeof(real_t<T>);
    if (!in_gpu_memory(time.keys.device(), staged_copy(time.times.data()))) plan.times_bytes = time.times.size_bytes();
  }
  return plan;
}

/// Arguments for the kernels without times.
template <class T>
ops::cuda::PackedAttention<T> packed_attention_of(const CausalPlan& plan, const CausalRows<const T>& x,
                                                  std::int64_t columns, const CausalAttention& a) {
  using R = real_t<T>;
  ops::cuda::PackedAttention<T> packed{.batch = plan.sequences,
                                       .time = plan.longest,
                                       .heads = a.heads,
                                       .width = columns / a.heads,
                                       .scale = 1 / std::sqrt(static_cast<R>(columns / a.heads)),
                                       .q = x.q,
                                       .k = x.k,
                                       .v = x.v,
                                       .stride = x.stride,
                                       .kv_stride = x.kv_stride};
  packed.dropout = a.dropout;
  packed.samples = staged_copy(a.rows.samples.data());
  packed.draws.row_groups = std::uint64_t{1} << 28;
  packed.offsets = staged_copy(a.rows.offsets.data());
  packed.first_query = a.first_query.empty() ? nullptr : staged_copy(a.first_query.data());
  packed.causal = true;
  packed.fill = static_cast<R>(a.fill);
  packed.all_rows = a.rows.capacity > 0 ? a.rows.rows() : 0;
  packed.product_flops = plan.product_flops;
  return packed;
}

/// Calls f.template operator()<kChunks, kTimed>(). Only with times.
template <class F>
void visit_causal(const CausalPlan& plan, const F& f) {
  const auto with = [&]<int kChunks>() {
    plan.timed == Timed::whole ? f.template operator()<kChunks, Timed::whole>()
                               : f.template operator()<kChunks, Timed::masked>();
  };
  plan.chunks == 1 ? with.template operator()<1>() : with.template operator()<2>();
}

/// The dropout factor of element (r, channel) of a table in one sequence: 0 or the scale.
template <class T>
__device__ T table_keep(const CausalLaunch<T>& p, const Drop<T>& drop, std::uint64_t sample, int side, std::int64_t r,
                        std::int64_t channel) {
  ops::Dropout d = p.time_dropout;
  d.site.id += static_cast<std::uint32_t>(side);
  const auto e = static_cast<std::uint64_t>(r * p.columns + channel);
  constexpr auto kGroup = static_cast<std::uint64_t>(kGroupDraws);
  const int place = static_cast<int>(e % kGroup);
  return drop(T{1}, LaneDraws(d.draws(sample), e / kGroup, place % 32).at(place / 32));
}

/// Copies both tables (R, C), split by head and scaled, to (copies, 2, heads, R, table_stride). One thread per element.
/// Memory bound.
template <class T>
__global__ void __launch_bounds__(256)
    time_tables_kernel(gpu::Earlier earlier, CausalLaunch<real_t<T>> p, std::int64_t count, real_t<T>* __restrict__ out,
                       const T* __restrict__ keys, const T* __restrict__ values, Drop<real_t<T>> drop,
                       real_t<T> scale) {
  earlier.wait();
  const std::int64_t stride = table_stride(p.width), rows = p.last + 1;
  for (std::int64_t e = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < count;
       e += std::int64_t{gridDim.x} * blockDim.x) {
    const std::int64_t c = e % stride, r = e / stride % rows, head = e / (stride * rows) % p.heads;
    const std::int64_t side = e / (stride * rows * p.heads) % 2, sequence = e / (stride * rows * p.heads * 2);
    real_t<T> value = 0;
    if (c < p.width) {
      const std::int64_t channel = head * p.width + c;
      value = scale * load((side == 0 ? keys : values) + r * p.columns + channel);
      if (p.tables_apart > 0) value *= table_keep(p, drop, p.samples[sequence], static_cast<int>(side), r, channel);
    }
    out[e] = value;
  }
}

/// The threshold of element masks, whose rate is a multiple of 1/256.
inline std::uint32_t element_threshold(const TimeBuckets& time) {
  return time && time.dropout && time.drop == TimeBuckets::Drop::element
             ? static_cast<std::uint32_t>(std::lround(time.dropout.rate * 256))
             : 0;
}
inline double element_scale(const TimeBuckets& time) { return 256.0 / (256 - element_threshold(time)); }

/// The arguments of kernels, without tables and times.
template <class T>
CausalLaunch<real_t<T>> causal_launch(const CausalRows<const T>& x, std::int64_t columns, const CausalAttention& a,
                                      const TimeBuckets& time) {
  using R = real_t<T>;
  const int heads = static_cast<int>(a.heads), width = static_cast<int>(columns / a.heads);
  return {.sequences = a.rows.count(),
          .columns = columns,
          .stride = x.stride,
          .kv_stride = x.kv_stride,
          .rows = a.rows.rows(),
          .blocks = a.rows.count(),
          .heads = heads,
          .width = width,
          .offsets = staged_copy(a.rows.offsets.data()),
          .samples = staged_copy(a.rows.samples.data()),
          .first_query = a.first_query.empty() ? nullptr : staged_copy(a.first_query.data()),
          .scale = static_cast<R>(1) / std::sqrt(static_cast<R>(width)),
          .dropout = a.dropout,
          .drop = Drop<R>(ops::cpu::DropRate(a.dropout.rate)),
          .tables = nullptr,
          .tables_apart = tables_per_sequence(time) ? tables_size(columns, a, time) / a.rows.count() : 0,
          .times = nullptr,
          .last = time ? time.keys.rows() - 1 : 0,
          .threshold = element_threshold(time),
          .time_dropout = time.dropout};
}

template <class T>
void write_tables(const Stream& stream, const CausalLaunch<real_t<T>>& p, real_t<T>* tables, std::int64_t count,
                  const TimeBuckets& time) {
  using R = real_t<T>;
  launch(stream, grid_for(count), time_tables_kernel<T>, p, count, tables, time.keys.data<T>(), time.values.data<T>(),
         Drop<R>(ops::cpu::DropRate(time.dropout.rate)), static_cast<R>(element_scale(time)));
}

/// Copies times and, unless they are prepared, tables to scratch memory and completes the kernels' arguments. scratch:
/// tables_bytes + times_bytes of the plan.
template <class T>
CausalLaunch<real_t<T>> prepare_causal(const Stream& stream, const CausalPlan& plan, std::byte* scratch,
                                       const CausalRows<const T>& x, std::int64_t columns, const CausalAttention& a,
                                       const TimeBuckets& time) {
  using R = real_t<T>;
  CausalLaunch<R> p = causal_launch<T>(x, columns, a, time);
  if (!time) return p;
  p.times = staged_copy(time.times.data());
  if (plan.times_bytes > 0) {
    auto* times = reinterpret_cast<std::int64_t*>(scratch + plan.tables_bytes);
    copy_bytes(stream, times, time.times.data(), plan.times_bytes);
    p.times = times;
  }
  auto* tables = time.prepared ? time.prepared.data<R>() : reinterpret_cast<R*>(scratch);
  if (!time.prepared) write_tables<T>(stream, p, tables, tables_size(columns, a, time), time);
  p.tables = tables;
  return p;
}

}  // namespace lockstep::gpu
