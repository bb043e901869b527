#include "lockstep/ops/graph_samples.hpp"

#include "graph_samples_kernels.hpp"
#include "lockstep/device/has_cuda.hpp"

namespace lockstep::ops {

namespace {

std::int32_t* allocate_packs(Arena& arena, std::int64_t count) {
  return arena.array<std::int32_t>((count + cuda::kCounted - 1) / cuda::kCounted * cuda::kCounted).data();
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

cuda::Uses uses_of(Arena& arena, std::int64_t samples) {
  const std::int64_t n = 3 * samples;
  return {.n = n,
          .row = allocate_packs(arena, n),
          .first = allocate_packs(arena, n),
          .start = arena.array<std::int32_t>(n).data(),
          .rows = arena.array<std::int32_t>(n).data(),
          .ptr = arena.array<std::int64_t>(n + 1).data()};
}
RowLists lists_of(const cuda::Uses& uses) { return {list(uses.rows, uses.n), list(uses.ptr, uses.n + 1)}; }

}  // namespace

PairBatch pair_batch([[maybe_unused]] Stream& stream, Arena& arena, const PairSource& source, std::int64_t nodes) {
  require_source(arena, source);
  const std::int64_t count = source.count, n = 3 * count, listed = std::min(n, nodes), words = (nodes + 63) / 64;
  const cuda::PairArrays a = {.source = source,
                              .uses = uses_of(arena, count),
                              .use = arena.array<std::int32_t>(n).data(),
                              .at = arena.array<std::int32_t>(n).data(),
                              .nodes = nodes,
                              .listed_size = listed,
                              .words = words,
                              .listed = arena.array<std::int32_t>(listed).data(),
                              .bits = arena.array<std::uint64_t>(words).data()};
  if constexpr (kHasCuda) cuda::pair_batch(stream, a);
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

TripleBatch triple_batch([[maybe_unused]] Stream& stream, Arena& arena, const TripleSource& source,
                         std::int64_t relations, std::int64_t chunk) {
  require_source(arena, source);
  const std::int64_t count = source.count, n = 3 * count, most_relations = std::min(count, relations);
  // At most one chunk of a relation is not full.
  cuda::TripleArrays a = {.source = source,
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
  if constexpr (kHasCuda) cuda::triple_batch(stream, a);
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
