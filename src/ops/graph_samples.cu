#include "lockstep/ops/graph_samples.hpp"

#include <cooperative_groups.h>

#include <limits>

#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "ops/common/on_gpu.hpp"

namespace lockstep::ops {

namespace {

/// Arrays that count() reads ("counted") are allocated as a whole number of packs of this size.
inline constexpr int kCounted = 4;

/// The uses of rows of a batch.
struct Uses {
  std::int64_t n = 0;
  std::int32_t* row = nullptr;    ///< (n), counted
  std::int32_t* first = nullptr;  ///< (n), counted: the row, if this is its first use
  std::int32_t* start = nullptr;  ///< (n) uses of smaller rows
  // of RowLists
  std::int32_t* rows = nullptr;
  std::int64_t* ptr = nullptr;
};

struct PairArrays {
  PairSource source = {};
  Uses uses = {};
  std::int32_t *use = nullptr, *at = nullptr;  ///< (n) by row; (3, B) indices of users, their items, other items
  std::int64_t nodes = 0, listed_size = 0, words = 0;
  std::int32_t* listed = nullptr;
  std::uint64_t* bits = nullptr;
};

struct TripleArrays {
  TripleSource source = {};
  std::int64_t chunk = 0, most_chunks = 0, most_relations = 0;
  std::int32_t* drawn[4] = {};  ///< (B) each, in the order of the draws: heads, relations (counted), tails, other tails
  std::int32_t* sorted[3] = {};  ///< (B) each: heads, tails, other tails
  /// (B), counted, in the order of the draws: the relation if the sample is the first of a chunk; of its relation.
  std::int32_t *first_of_chunk = nullptr, *first_of_relation = nullptr;
  Uses uses = {};
  std::int64_t* row_of_use = nullptr;  ///< (n)
  RelationChunk* chunks = nullptr;
  std::int32_t* relations = nullptr;
  std::int64_t *relation_chunks = nullptr, *places = nullptr;
};

using gpu::kWarp;
using gpu::Pack;
constexpr int kThreads = 256, kWarps = kThreads / kWarp;
/// More blocks would wait longer for one another, and the stand-in has stacks for only this many.
constexpr std::int64_t kMostBlocks = 96;

/// Greater than all rows and relations. Pads arrays that count() reads to whole packs.
constexpr std::int32_t kNone = std::numeric_limits<std::int32_t>::max();

/// Calls f(i) for i < n, with one thread of the grid for each i.
template <class F>
__device__ void by_threads(std::int64_t n, const F& f) {
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += stride) f(i);
}
/// The same with one warp for each i: all lanes call f(i).
template <class F>
__device__ void by_warps(std::int64_t n, const F& f) {
  const std::int64_t stride = std::int64_t{gridDim.x} * kWarps;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp; i < n; i += stride) f(i);
}
__device__ int lane() { return static_cast<int>(threadIdx.x) % kWarp; }

/// Lanes that search for a sample's item together.
constexpr int kSeekers = 8;
/// items_before(), with kSeekers loads at once. All lanes of a warp call it, those of a group with the same arguments.
__device__ std::int64_t items_before_by_lanes(const std::int32_t* items, std::int64_t n, std::int64_t k) {
  const int seeker = lane() % kSeekers;
  std::int64_t low = 0, high = n;  // the result is one of low .. high
  while (__any_sync(gpu::kWholeWarp, low < high)) {
    const std::int64_t step = (high - low) / (kSeekers + 1) + 1, at = low + (seeker + 1) * step - 1;
    const unsigned below = __ballot_sync(gpu::kWholeWarp, at < high && items[at] - at <= k);
    const int count = __popc((below >> (lane() - seeker)) & ((1u << kSeekers) - 1));
    low += count * step;
    if (count < kSeekers && low + step - 1 < high) high = low + step - 1;
  }
  return low;
}

__device__ void fill_packs(std::int32_t* values, std::int64_t n) {
  by_threads(gpu::ceil_div(n, kCounted) * kCounted - n, [&](std::int64_t i) { values[n + i] = kNone; });
}

template <int K>
struct Counts {
  std::int32_t at[K];
};
/// For each k < K: the number of values x_j, j < n, for which f(k, x_j, j) holds. All lanes of a warp call it.
template <int K, class F>
__device__ Counts<K> count(const std::int32_t* values, std::int64_t n, const F& f) {
  Counts<K> sum = {};
#pragma unroll 4
  for (std::int64_t j = kCounted * lane(); j < n; j += kCounted * kWarp) {
    const auto x = *reinterpret_cast<const Pack<std::int32_t, kCounted>*>(values + j);
#pragma unroll
    for (int e = 0; e < kCounted; ++e) {
#pragma unroll
      for (int k = 0; k < K; ++k) sum.at[k] += f(k, x.at[e], j + e) ? 1 : 0;
    }
  }
#pragma unroll
  for (int k = 0; k < K; ++k) sum.at[k] = gpu::warp_reduce(sum.at[k]);
  return sum;
}
__device__ std::int32_t less_than(const std::int32_t* values, std::int64_t n, std::int32_t value) {
  return count<1>(values, n, [&](int, std::int32_t x, std::int64_t) { return x < value; }).at[0];
}

/// A copy of `values` in shared memory, in which all warps of the block count, or `values` if they are too many. All
/// threads of a block call it, and again only after a barrier.
__device__ const std::int32_t* near(const std::int32_t* values, std::int64_t n) {
  constexpr std::int64_t kMost = 4096;
  alignas(16) __shared__ std::int32_t sm_values[kMost];
  if (n > kMost) return values;
#pragma unroll 4
  for (std::int64_t i = kCounted * std::int64_t{threadIdx.x}; i < n; i += kCounted * kThreads)
    *reinterpret_cast<Pack<std::int32_t, kCounted>*>(sm_values + i) =
        *reinterpret_cast<const Pack<std::int32_t, kCounted>*>(values + i);
  __syncthreads();
  return sm_values;
}

/// Sorts the uses by row, stably, and calls put(index, use). A warp counts for several uses at once, so that each load
/// serves them all.
template <class Put>
__device__ void sort_uses(const Uses& uses, const Put& put) {
  const std::int32_t* const rows = near(uses.row, uses.n);
  by_warps(gpu::ceil_div(uses.n, kCounted), [&](std::int64_t group) {
    const std::int64_t first = kCounted * group;
    const auto row = *reinterpret_cast<const Pack<std::int32_t, kCounted>*>(rows + first);
    const auto smaller =
        count<kCounted>(rows, uses.n, [&](int k, std::int32_t x, std::int64_t) { return x < row.at[k]; });
    const auto equal =
        count<kCounted>(rows, first, [&](int k, std::int32_t x, std::int64_t) { return x == row.at[k]; });
#pragma unroll
    for (int k = 0; k < kCounted; ++k) {
      if (lane() != k || first + k >= uses.n) continue;
      const std::int32_t less = smaller.at[k];
      std::int32_t index = less + equal.at[k];
#pragma unroll
      for (int e = 0; e < k; ++e) index += row.at[e] == row.at[k] ? 1 : 0;
      uses.first[first + k] = index == less ? row.at[k] : kNone;
      uses.start[first + k] = less;
      put(index, first + k);
    }
  });
}
/// Lists the distinct rows and their first uses, after sort_uses(), and calls put(index of its row, use).
template <class Put>
__device__ void list_rows(const Uses& uses, const Put& put) {
  const std::int32_t* const firsts = near(uses.first, uses.n);
  by_warps(gpu::ceil_div(uses.n, kCounted), [&](std::int64_t group) {
    const std::int64_t first = kCounted * group;
    const auto row = *reinterpret_cast<const Pack<std::int32_t, kCounted>*>(uses.row + first);
    const auto indices =
        count<kCounted>(firsts, uses.n, [&](int k, std::int32_t x, std::int64_t) { return x < row.at[k]; });
#pragma unroll
    for (int k = 0; k < kCounted; ++k) {
      if (lane() != k || first + k >= uses.n) continue;
      const std::int32_t index = indices.at[k];
      put(index, first + k);
      if (firsts[first + k] == kNone) continue;
      uses.rows[index] = row.at[k];
      uses.ptr[index] = uses.start[first + k];
    }
  });
}
__device__ void clear_lists(const Uses& uses) {
  fill_packs(uses.row, uses.n);
  fill_packs(uses.first, uses.n);
  by_threads(uses.n, [&](std::int64_t i) {
    uses.rows[i] = -1;
    uses.ptr[i + 1] = uses.n;
  });
}

/// A group of lanes per sample draws. Then each use finds its index in the sorted order by counting: 2.5 n^2
/// comparisons, 24 million for 1024 samples, without the launches and barriers of a sort. Latency bound: a draw is some
/// eight dependent loads, and the blocks wait for one another three times.
[[maybe_unused]] __global__ void __launch_bounds__(kThreads) pair_batch_kernel(PairArrays a) {
  const auto grid = cooperative_groups::this_grid();
  const PairSource& source = a.source;
  const std::int64_t samples = source.count;
  clear_lists(a.uses);
  by_threads(a.words, [&](std::int64_t w) { a.bits[w] = 0; });
  by_threads(gpu::ceil_div(samples * kSeekers, kWarp) * kWarp, [&](std::int64_t i) {
    const std::int64_t b = i / kSeekers < samples ? i / kSeekers : samples - 1;  // whole warps draw
    DrawnPair pair;
    if (source.draw != nullptr) {
      pair = drawn_pair(source.table, *source.draw, b, items_before_by_lanes);
    } else {
      pair = {source.columns[0].data()[b], source.columns[1].data()[b], source.columns[2].data()[b]};
    }
    if (i % kSeekers != 0 || i / kSeekers >= samples) return;
    std::int32_t* const row = a.uses.row + 3 * b;
    row[0] = pair.user;
    row[1] = pair.liked;
    row[2] = pair.other;
  });
  grid.sync();
  sort_uses(a.uses, [&](std::int64_t at, std::int64_t use) { a.use[at] = static_cast<std::int32_t>(use); });
  grid.sync();
  list_rows(a.uses, [&](std::int32_t index, std::int64_t use) { a.at[use % 3 * samples + use / 3] = index; });
  grid.sync();
  // The list has the rows that fewer than `lacking` non-rows precede, then all nodes from there on.
  const std::int64_t lacking = a.nodes - a.listed_size;
  by_threads(a.listed_size, [&](std::int64_t i) {
    const std::int32_t row = a.uses.rows[i];
    const std::int64_t node = row >= 0 && row - i < lacking ? row : lacking + i;
    a.listed[i] = static_cast<std::int32_t>(node);
    atomicAdd(reinterpret_cast<unsigned long long*>(a.bits + node / 64), 1ull << node % 64);  // a sum of distinct bits
  });
}

/// Like pair_batch_kernel(), but sorts the samples by relation first.
[[maybe_unused]] __global__ void __launch_bounds__(kThreads) triple_batch_kernel(TripleArrays a) {
  const auto grid = cooperative_groups::this_grid();
  const TripleSource& source = a.source;
  const std::int64_t samples = source.count;
  clear_lists(a.uses);
  fill_packs(a.drawn[1], samples);
  fill_packs(a.first_of_chunk, samples);
  fill_packs(a.first_of_relation, samples);
  by_threads(a.most_chunks, [&](std::int64_t c) { a.chunks[c] = {}; });
  by_threads(a.most_relations, [&](std::int64_t r) { a.relations[r] = -1; });
  by_threads(samples, [&](std::int64_t b) {
    DrawnTriple triple;
    if (source.draw != nullptr) {
      triple = drawn_triple(source.table, *source.draw, b);
    } else {
      triple = {source.columns[0].data()[b], source.columns[1].data()[b], source.columns[2].data()[b],
                source.columns[3].data()[b]};
    }
    a.drawn[0][b] = triple.head;
    a.drawn[1][b] = triple.relation;
    a.drawn[2][b] = triple.tail;
    a.drawn[3][b] = triple.other;
  });
  grid.sync();
  const std::int32_t* const relations = a.drawn[1];
  /// A sample's index in the order by relation, and the number of samples of its relation before it, and from it on.
  struct Place {
    std::int64_t at, before, left;
  };
  const auto place_of = [&](std::int64_t b) {
    const std::int32_t relation = relations[b];
    const auto counts = count<3>(relations, samples, [&](int k, std::int32_t x, std::int64_t j) {
      return k == 0 ? x < relation : x < relation || (x == relation && (k == 2 || j < b));
    });
    return Place{counts.at[1], counts.at[1] - counts.at[0], counts.at[2] - counts.at[1]};
  };
  by_warps(samples, [&](std::int64_t b) {
    const Place place = place_of(b);
    const std::int64_t in_chunk = place.before % a.chunk, left = place.left + in_chunk,
                       size = left < a.chunk ? left : a.chunk;
    if (lane() != 0) return;
    a.first_of_chunk[b] = in_chunk == 0 ? relations[b] : kNone;
    a.first_of_relation[b] = place.before == 0 ? relations[b] : kNone;
    const std::int32_t rows[3] = {a.drawn[0][b], a.drawn[2][b], a.drawn[3][b]};
    for (int role = 0; role < 3; ++role) {
      const std::int64_t use = 3 * place.at + role;
      a.sorted[role][place.at] = a.uses.row[use] = rows[role];
      a.row_of_use[use] = 3 * (place.at - in_chunk) + role * size + in_chunk;
    }
  });
  grid.sync();
  sort_uses(a.uses, [&](std::int64_t at, std::int64_t use) { a.places[at] = a.row_of_use[use]; });
  by_warps(samples, [&](std::int64_t b) {
    if (a.first_of_chunk[b] == kNone) return;
    const std::int32_t relation = relations[b];
    const Place place = place_of(b);
    const std::int64_t chunk = less_than(a.first_of_chunk, samples, relation) + place.before / a.chunk;
    const std::int32_t number = less_than(a.first_of_relation, samples, relation);
    if (lane() == 0) a.chunks[chunk] = {relation, place.at, place.left < a.chunk ? place.left : a.chunk};
    if (place.before != 0) return;
    if (lane() == 0) {
      a.relations[number] = relation;
      a.relation_chunks[number] = chunk;
    }
    if (place.at + place.left < samples) return;  // not the greatest relation
    for (std::int64_t r = number + 1 + lane(); r <= a.most_relations; r += kWarp)
      a.relation_chunks[r] = chunk + gpu::ceil_div(place.left, a.chunk);
  });
  grid.sync();
  list_rows(a.uses, [](std::int32_t, std::int64_t) {});
}

/// As many blocks as have work, but no more than run at the same time, because they wait for one another.
template <class Arrays>
void start(const Stream& stream, void (*kernel)(Arrays), const Arrays& arrays) {
  if (arrays.uses.n == 0) return;
  const std::int64_t resident = gpu::resident_blocks(stream, reinterpret_cast<const void*>(kernel), kThreads, 0);
  const std::int64_t blocks = std::clamp<std::int64_t>(gpu::ceil_div(arrays.uses.n, kCounted * kWarps), 1,
                                                       std::clamp<std::int64_t>(resident, 1, kMostBlocks));
  gpu::launch(stream, {.grid = blocks, .block = kThreads, .cooperative = true}, kernel, arrays);
}

std::int32_t* allocate_packs(Arena& arena, std::int64_t count) {
  return arena.array<std::int32_t>((count + kCounted - 1) / kCounted * kCounted).data();
}
template <class T>
std::span<const T> list(const T* values, std::int64_t count) {
  return {values, static_cast<std::size_t>(count)};
}

template <class Source>
void require_source(const Arena& arena, const Source& source) {
  for (const auto& column : source.columns)
    require(source.draw != nullptr || std::ssize(column) == source.count, "batch of ", source.count,
            " samples: a column has ", column.size());
  require(kHasCuda && arena.device().is_cuda(), "batches are made by kernels: the arena must be on a GPU");
}

Uses uses_of(Arena& arena, std::int64_t samples) {
  const std::int64_t n = 3 * samples;
  return {.n = n,
          .row = allocate_packs(arena, n),
          .first = allocate_packs(arena, n),
          .start = arena.array<std::int32_t>(n).data(),
          .rows = arena.array<std::int32_t>(n).data(),
          .ptr = arena.array<std::int64_t>(n + 1).data()};
}
RowLists lists_of(const Uses& uses) { return {list(uses.rows, uses.n), list(uses.ptr, uses.n + 1)}; }

}  // namespace

PairBatch pair_batch(Stream& stream, Arena& arena, const PairSource& source, std::int64_t nodes) {
  require_source(arena, source);
  const std::int64_t count = source.count, n = 3 * count, listed = std::min(n, nodes), words = (nodes + 63) / 64;
  const PairArrays a = {.source = source,
                        .uses = uses_of(arena, count),
                        .use = arena.array<std::int32_t>(n).data(),
                        .at = arena.array<std::int32_t>(n).data(),
                        .nodes = nodes,
                        .listed_size = listed,
                        .words = words,
                        .listed = arena.array<std::int32_t>(listed).data(),
                        .bits = arena.array<std::uint64_t>(words).data()};
  on_gpu(stream, [&](const auto& of_gpu) { start(of_gpu, pair_batch_kernel, a); });
  const RowLists lists = lists_of(a.uses);
  return {lists,
          {.user = list(a.at, count),
           .liked = list(a.at + count, count),
           .other = list(a.at + 2 * count, count),
           .use_ptr = lists.ptr,
           .use = list(a.use, n)},
          list(a.listed, listed),
          list(a.bits, words)};
}

TripleBatch triple_batch(Stream& stream, Arena& arena, const TripleSource& source, std::int64_t relations,
                         std::int64_t chunk) {
  require_source(arena, source);
  const std::int64_t count = source.count, n = 3 * count, most_relations = std::min(count, relations);
  // At most one chunk of a relation is not full.
  TripleArrays a = {.source = source,
                    .chunk = chunk,
                    .most_chunks = count / chunk + most_relations,
                    .most_relations = most_relations};
  for (std::int32_t*& column : a.drawn) column = allocate_packs(arena, count);
  for (std::int32_t*& column : a.sorted) column = arena.array<std::int32_t>(count).data();
  a.first_of_chunk = allocate_packs(arena, count);
  a.first_of_relation = allocate_packs(arena, count);
  a.uses = uses_of(arena, count);
  a.row_of_use = arena.array<std::int64_t>(n).data();
  a.chunks = arena.array<RelationChunk>(a.most_chunks).data();
  a.relations = arena.array<std::int32_t>(most_relations).data();
  a.relation_chunks = arena.array<std::int64_t>(most_relations + 1).data();
  a.places = arena.array<std::int64_t>(n).data();
  on_gpu(stream, [&](const auto& of_gpu) { start(of_gpu, triple_batch_kernel, a); });
  return {lists_of(a.uses),
          {.chunks = list(a.chunks, a.most_chunks),
           .head = list(a.sorted[0], count),
           .tail = list(a.sorted[1], count),
           .other = list(a.sorted[2], count)},
          list(a.relations, most_relations),
          list(a.relation_chunks, most_relations + 1),
          list(a.places, n)};
}

}  // namespace lockstep::ops
