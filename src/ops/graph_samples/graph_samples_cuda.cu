#include <cooperative_groups.h>

#include <limits>

#include "graph_samples_kernels.hpp"
#include "lockstep/device/cuda_reduce.hpp"

namespace lockstep::ops::cuda {
namespace {

using gpu::kWarp;
constexpr int kThreads = 256, kWarps = kThreads / kWarp;

/// Greater than all rows and relations.
constexpr std::int32_t kNone = std::numeric_limits<std::int32_t>::max();

/// Calls f(i), i < n, in the threads of the grid.
template <class F>
__device__ void by_threads(std::int64_t n, const F& f) {
  // mutant-equivalent: several threads may store the same
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += stride) f(i);
}
/// The same in its warps: all lanes call f(i).
template <class F>
__device__ void by_warps(std::int64_t n, const F& f) {
  // mutant-equivalent: several warps may store the same
  const std::int64_t stride = std::int64_t{gridDim.x} * kWarps;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp; i < n; i += stride) f(i);
}
__device__ int lane() { return static_cast<int>(threadIdx.x) % kWarp; }

/// How many of n values are less than `value`, by a warp.
__device__ std::int32_t less_than(const std::int32_t* values, std::int64_t n, std::int32_t value) {
  std::int32_t less = 0;
#pragma unroll 4
  for (std::int64_t j = lane(); j < n; j += kWarp) less += values[j] < value ? 1 : 0;
  return gpu::warp_reduce(less);
}
/// The same for value i, and its place if the values are sorted stably.
struct Rank {
  std::int32_t less = 0, place = 0;
};
__device__ Rank rank_of(const std::int32_t* values, std::int64_t n, std::int64_t i) {
  const std::int32_t value = values[i];
  Rank rank;
#pragma unroll 4
  for (std::int64_t j = lane(); j < n; j += kWarp) {
    const std::int32_t x = values[j];
    rank.less += x < value ? 1 : 0;
    rank.place += x < value || (x == value && j < i) ? 1 : 0;
  }
  return {gpu::warp_reduce(rank.less), gpu::warp_reduce(rank.place)};
}

/// Sorts the uses by row, stably: put(at, use).
template <class Put>
__device__ void sort_uses(const Uses& uses, const Put& put) {
  by_warps(uses.n, [&](std::int64_t use) {
    const Rank rank = rank_of(uses.row, uses.n, use);
    if (lane() != 0) return;  // mutant-equivalent: several lanes may store the same
    uses.first[use] = rank.place == rank.less ? uses.row[use] : kNone;
    uses.start[use] = rank.less;
    put(rank.place, use);
  });
}
/// Lists the distinct rows and where their uses begin, after sort_uses(): put(place of its row, use).
template <class Put>
__device__ void list_rows(const Uses& uses, const Put& put) {
  by_warps(uses.n, [&](std::int64_t use) {
    const std::int32_t place = less_than(uses.first, uses.n, uses.row[use]);
    if (lane() != 0) return;  // mutant-equivalent: several lanes may store the same
    put(place, use);
    if (uses.first[use] == kNone) return;
    uses.rows[place] = uses.row[use];
    uses.ptr[place] = uses.start[use];
  });
}
__device__ void clear_lists(const Uses& uses) {
  by_threads(uses.n + 1, [&](std::int64_t i) {
    if (i < uses.n) uses.rows[i] = -1;
    uses.ptr[i] = uses.n;
  });
}

/// One thread per sample draws; then one warp per use counts the rows that are less, which are its place: 4 n^2 bytes from
/// the first-level cache of each multiprocessor, 12 MB each for 1024 samples, without the launches and barriers of a sort.
/// Latency bound: a draw is some ten dependent loads. The blocks wait for each other three times.
__global__ void __launch_bounds__(kThreads) pair_batch_kernel(PairArrays a) {
  const auto grid = cooperative_groups::this_grid();
  const PairSource& source = a.source;
  const std::int64_t count = source.count;
  clear_lists(a.uses);
  by_threads(count, [&](std::int64_t b) {
    DrawnPair pair;
    if (source.draw != nullptr) {
      pair = drawn_pair(source.table, *source.draw, b);
    } else {
      pair = {source.columns[0].data()[b], source.columns[1].data()[b], source.columns[2].data()[b]};
    }
    std::int32_t* const row = a.uses.row + 3 * b;
    row[0] = pair.user;
    row[1] = pair.liked;
    row[2] = pair.other;
  });
  grid.sync();
  sort_uses(a.uses, [&](std::int64_t at, std::int64_t use) { a.use[at] = static_cast<std::int32_t>(use); });
  grid.sync();
  list_rows(a.uses, [&](std::int32_t place, std::int64_t use) { a.at[use % 3 * count + use / 3] = place; });
  grid.sync();
  // The list lacks `lacking` nodes, all of them below its `few` first rows' successor: behind these rows come the nodes from
  // few + lacking on, whether rows or not.
  const std::int64_t lacking = a.nodes - a.listed_size;
  std::int64_t few = 0;
  for (std::int64_t high = a.uses.n; few < high;) {
    const std::int64_t middle = (few + high) / 2;
    const std::int32_t row = a.uses.rows[middle];
    if (row < 0 || row - middle >= lacking)
      high = middle;
    else
      few = middle + 1;
  }
  by_threads(a.listed_size,
             [&](std::int64_t i) { a.listed[i] = i < few ? a.uses.rows[i] : static_cast<std::int32_t>(lacking + i); });
  by_threads(a.words, [&](std::int64_t w) {
    const std::int64_t begin = 64 * w, end = begin + 64 < a.nodes ? begin + 64 : a.nodes, all_from = few + lacking;
    std::uint64_t word = 0;
    for (std::int64_t i = first_above(a.uses.rows, few, static_cast<std::int32_t>(begin - 1));
         i < few && a.uses.rows[i] < end; ++i)
      word |= std::uint64_t{1} << (a.uses.rows[i] - begin);
    for (std::int64_t node = begin > all_from ? begin : all_from; node < end; ++node)
      word |= std::uint64_t{1} << (node - begin);
    a.bits[w] = word;
  });
}

/// As pair_batch_kernel(). Before the uses, the samples themselves are sorted, by relation.
__global__ void __launch_bounds__(kThreads) triple_batch_kernel(TripleArrays a) {
  const auto grid = cooperative_groups::this_grid();
  const TripleSource& source = a.source;
  const std::int64_t count = source.count;
  clear_lists(a.uses);
  by_threads(a.most_chunks, [&](std::int64_t c) { a.chunks[c] = {}; });
  by_threads(a.most_relations, [&](std::int64_t r) { a.relations[r] = -1; });
  by_threads(count, [&](std::int64_t b) {
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
  // The samples of a relation from this one on.
  const auto left_of = [&](std::int32_t relation, Rank rank) {
    return less_than(relations, count, relation + 1) - rank.place;
  };
  by_warps(count, [&](std::int64_t b) {
    const Rank rank = rank_of(relations, count, b);
    const std::int64_t before = rank.place - rank.less, in_chunk = before % a.chunk,
                       left = left_of(relations[b], rank) + in_chunk, size = left < a.chunk ? left : a.chunk;
    if (lane() != 0) return;  // mutant-equivalent: several lanes may store the same
    a.first_of_chunk[b] = in_chunk == 0 ? relations[b] : kNone;
    a.first_of_relation[b] = before == 0 ? relations[b] : kNone;
    const std::int32_t rows[3] = {a.drawn[0][b], a.drawn[2][b], a.drawn[3][b]};
    for (int role = 0; role < 3; ++role) {
      const std::int64_t use = 3 * std::int64_t{rank.place} + role;
      a.sorted[role][rank.place] = a.uses.row[use] = rows[role];
      a.row_of_use[use] = 3 * (rank.place - in_chunk) + role * size + in_chunk;
    }
  });
  grid.sync();
  sort_uses(a.uses, [&](std::int64_t at, std::int64_t use) { a.places[at] = a.row_of_use[use]; });
  by_warps(count, [&](std::int64_t b) {
    if (a.first_of_chunk[b] == kNone) return;
    const std::int32_t relation = relations[b];
    const Rank rank = rank_of(relations, count, b);
    const std::int64_t before = rank.place - rank.less, left = left_of(relation, rank),
                       chunk = less_than(a.first_of_chunk, count, relation) + before / a.chunk;
    const std::int32_t place = less_than(a.first_of_relation, count, relation);
    if (lane() == 0)  // mutant-equivalent: several lanes may store the same
      a.chunks[chunk] = {relation, rank.place, left < a.chunk ? left : a.chunk};
    if (before != 0) return;
    if (lane() == 0) {  // mutant-equivalent: several lanes may store the same
      a.relations[place] = relation;
      a.relation_chunks[place] = chunk;
    }
    if (rank.less + left < count) return;  // not the greatest relation
    for (std::int64_t r = place + 1 + lane(); r <= a.most_relations; r += kWarp)
      a.relation_chunks[r] = chunk + gpu::ceil_div(left, a.chunk);
  });
  grid.sync();
  list_rows(a.uses, [](std::int32_t, std::int64_t) {});
}

/// As many blocks as have work and fit on the GPU together.
template <class Arrays>
void start(const Stream& stream, void (*kernel)(Arrays), const Arrays& arrays) {
  if (arrays.uses.n == 0) return;
  const auto most =
      static_cast<std::int64_t>(gpu::resident_blocks(stream, reinterpret_cast<const void*>(kernel), kThreads, 0));
  const std::int64_t blocks =
      std::clamp<std::int64_t>(gpu::ceil_div<std::int64_t>(arrays.uses.n, kWarps), 1, std::max<std::int64_t>(1, most));
  gpu::launch(stream, {.grid = static_cast<unsigned>(blocks), .block = kThreads, .cooperative = true}, kernel, arrays);
}

}  // namespace

void pair_batch(const Stream& stream, const PairArrays& arrays) { start(stream, pair_batch_kernel, arrays); }
void triple_batch(const Stream& stream, const TripleArrays& arrays) { start(stream, triple_batch_kernel, arrays); }

}  // namespace lockstep::ops::cuda
