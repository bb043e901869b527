#pragma once
#include <algorithm>
#include <cstdint>
#include <span>

#include "lockstep/base/permutation.hpp"
#include "lockstep/base/philox.hpp"
#include "lockstep/ops/bpr.hpp"
#include "lockstep/ops/training_windows.hpp"
#include "lockstep/ops/transr.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

// The arithmetic of KGAT's samples, shared by the host and kernels.

/// The draw of a step's samples from a pool of users or heads. Members are distinct if there are enough. Sample b uses
/// Philox(seed, step, site, b): draw 0 chooses a member if members may repeat, draw 1 the member's item or triple, draw
/// 2 (and more) the other item or tail.
struct PoolDraw {
  Permutation order = Permutation(1, 0, 0);  ///< of the pool, in this step
  std::uint64_t seed = 0, step = 0;
  std::uint32_t site = 0;
  bool distinct = false;

  PoolDraw() = default;
  PoolDraw(std::int64_t pool, std::uint64_t seed, Site site, std::int64_t step, std::int64_t samples)
      : order(pool, seed ^ std::uint64_t{site.id} << 32, static_cast<std::uint64_t>(step)),
        seed(seed),
        step(static_cast<std::uint64_t>(step)),
        site(site.id),
        distinct(samples <= pool) {}
  constexpr Philox draws(std::int64_t b) const { return {seed, step, Site(site), static_cast<std::uint64_t>(b)}; }
  /// The index in the pool of sample b's member.
  constexpr std::int64_t place(std::int64_t b) const {
    return distinct ? order(b) : static_cast<std::int64_t>(draws(b).below(static_cast<std::uint64_t>(order.size()), 0));
  }
};

/// Of n ascending items, the number of items below the k-th (from 0) non-item: those with items[j] - j <= k. Without
/// branches, because the processor could not predict them.
constexpr std::int64_t items_before(const std::int32_t* items, std::int64_t n, std::int64_t k) {
  std::int64_t before = 0;
  for (std::int64_t left = n; left > 0;) {
    const std::int64_t half = (left + 1) / 2, at = before + half - 1;
    before = items[at] - at <= k ? before + half : before;
    left -= half;
  }
  return before;
}

/// Random draws of another tail before nodes are tried in order. They suffice unless nearly every node is a tail.
inline constexpr std::uint64_t kTailDraws = 64;

/// Another tail that forms no triple, after draw 2 gave `first`, which does: the first of the next draws that forms
/// none, else the next node that forms none, else `tail`.
template <class IsTriple>
constexpr std::int32_t next_other_tail(const Philox& draws, std::int64_t nodes, std::int32_t first, std::int32_t tail,
                                       const IsTriple& is_triple) {
  std::int32_t other = first;
  bool triple = true;
  for (std::uint64_t draw = 3; draw < kTailDraws && triple; ++draw) {
    other = static_cast<std::int32_t>(draws.below(static_cast<std::uint64_t>(nodes), draw));
    triple = is_triple(other);
  }
  for (std::int64_t n = 0; n < nodes && triple; ++n) {
    other = static_cast<std::int32_t>((other + std::int64_t{1}) % nodes);
    triple = is_triple(other);
  }
  return triple ? tail : other;
}

/// Interactions in GPU memory.
struct InteractionTable {
  std::span<const std::int32_t> pool;    ///< users that have an item and lack one
  std::span<const std::int64_t> indptr;  ///< (users + 1)
  std::span<const std::int32_t> item;    ///< by user, ascending
  std::int64_t items = 0;
  std::int32_t first_user = 0;  ///< the row of user 0; item i is row i
};

/// Triples in GPU memory, sorted by (head, tail, relation).
struct TripleTable {
  std::span<const std::int32_t> pool;    ///< nodes that have triples
  std::span<const std::int64_t> indptr;  ///< (nodes + 1)
  std::span<const std::int32_t> tail, rel;
};

/// Rows of a user, an item that it has, and one that it lacks.
struct DrawnPair {
  std::int32_t user = 0, liked = 0, other = 0;
};
/// items_before: the function of this name, or one with its results.
template <class ItemsBefore>
constexpr DrawnPair drawn_pair(const InteractionTable& table, const PoolDraw& draw, std::int64_t b,
                               const ItemsBefore& items_before) {
  const Philox draws = draw.draws(b);
  const std::int32_t user = table.pool.data()[draw.place(b)];
  const std::int64_t begin = table.indptr.data()[user], n = table.indptr.data()[user + 1] - begin;
  const std::int32_t* items = table.item.data() + begin;
  const auto liked = static_cast<std::int64_t>(draws.below(static_cast<std::uint64_t>(n), 1)),
             k = static_cast<std::int64_t>(draws.below(static_cast<std::uint64_t>(table.items - n), 2));
  return {table.first_user + user, items[liked], static_cast<std::int32_t>(k + items_before(items, n, k))};
}

struct DrawnTriple {
  std::int32_t head = 0, relation = 0, tail = 0, other = 0;
};
constexpr DrawnTriple drawn_triple(const TripleTable& table, const PoolDraw& draw, std::int64_t b) {
  const Philox draws = draw.draws(b);
  const std::int32_t head = table.pool.data()[draw.place(b)];
  const std::int64_t begin = table.indptr.data()[head], n = table.indptr.data()[head + 1] - begin,
                     at = begin + static_cast<std::int64_t>(draws.below(static_cast<std::uint64_t>(n), 1)),
                     nodes = std::ssize(table.indptr) - 1;
  const std::int32_t relation = table.rel.data()[at], tail = table.tail.data()[at],
                     other = static_cast<std::int32_t>(draws.below(static_cast<std::uint64_t>(nodes), 2));
  const auto is_triple = [&](std::int32_t node) {
    const std::int32_t* tails = table.tail.data() + begin;
    for (std::int64_t i = first_above(tails, n, node - 1); i < n && tails[i] == node; ++i)
      if (table.rel.data()[begin + i] == relation) return true;
    return false;
  };
  return {head, relation, tail, is_triple(other) ? next_other_tail(draws, nodes, other, tail, is_triple) : other};
}

/// The rows of a batch of B samples with three rows each. The batch has n = 3B uses of rows: uses 3b, 3b + 1 and 3b + 2
/// belong to sample b. Lists whose lengths differ from batch to batch are padded.
struct RowLists {
  std::span<const std::int32_t> rows;  ///< (n) distinct, ascending, then -1
  std::span<const std::int64_t> ptr;   ///< (n + 1) the first use of each row, then n
};

/// Interactions: user, item of the user, item that the user lacks.
struct PairBatch : RowLists {
  RankedPairs pairs;  ///< as indices in `rows`; padded rows have no uses
  /// (min(n, nodes)) ascending: the rows, padded with the last nodes that are no rows; the same as a bitmap
  /// (ceil(nodes / 64)).
  std::span<const std::int32_t> listed;
  std::span<const std::uint64_t> bits;
};

/// Triples with another tail, in a stable sort by relation, divided into chunks.
struct TripleBatch : RowLists {
  RelationSamples samples;                        ///< chunks (B / chunk + R), then empty ones
  std::span<const std::int32_t> relations;        ///< (R = min(B, relations)) distinct, ascending, then -1
  std::span<const std::int64_t> relation_chunks;  ///< (R + 1) the first chunk of each, then the number of chunks
  /// (n) by row, then by use: the index of the use in an array ordered by chunks (heads, tails, other tails of each).
  std::span<const std::int64_t> places;
};

/// The source of a batch's samples, in GPU memory: a draw from a table, or columns (B) that the host has drawn.
template <class Table, int kColumns>
struct SampleSource {
  std::int64_t count = 0;  ///< B
  const PoolDraw* draw = nullptr;
  Table table = {};
  std::span<const std::int32_t> columns[kColumns] = {};  ///< used if draw is null
};
using PairSource = SampleSource<InteractionTable, 3>;  ///< rows of users, their items, items that they lack
using TripleSource = SampleSource<TripleTable, 4>;     ///< heads, relations, tails, other tails

/// Makes the batch of a step in the arena's memory, in one launch: draws the samples, with the bits of KgatSampler, and
/// sorts their uses by row.
///
/// errors   Error if the columns do not fit, or without a GPU
PairBatch pair_batch(Stream&, Arena&, const PairSource& source, std::int64_t nodes);
/// chunk: the largest number of samples in a chunk
TripleBatch triple_batch(Stream&, Arena&, const TripleSource& source, std::int64_t relations, std::int64_t chunk);

}  // namespace lockstep::ops
