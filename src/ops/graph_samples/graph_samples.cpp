#include "lockstep/ops/graph_samples.hpp"

#include "graph_samples_kernels.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/device/has_cuda.hpp"

namespace lockstep::ops {

namespace {

template <class T>
T* allocate_array(Arena& arena, std::int64_t count) {
  return static_cast<T*>(arena.allocate(static_cast<std::size_t>(count) * sizeof(T)));
}
std::int32_t* allocate_packs(Arena& arena, std::int64_t count) {
  return allocate_array<std::int32_t>(arena, (count + cuda::kCounted - 1) / cuda::kCounted * cuda::kCounted);
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
          .start = allocate_array<std::int32_t>(arena, n),
          .rows = allocate_array<std::int32_t>(arena, n),
          .ptr = allocate_array<std::int64_t>(arena, n + 1)};
}
RowLists lists_of(const cuda::Uses& uses) { return {list(uses.rows, uses.n), list(uses.ptr, uses.n + 1)}; }

}  // namespace

PairBatch pair_batch([[maybe_unused]] Stream& stream, Arena& arena, const PairSource& source, std::int64_t nodes) {
  require_source(arena, source);
  const std::int64_t count = source.count, n = 3 * count, listed = std::min(n, nodes), words = (nodes + 63) / 64;
  const cuda::PairArrays a = {.source = source,
                              .uses = uses_of(arena, count),
                              .use = allocate_array<std::int32_t>(arena, n),
                              .at = allocate_array<std::int32_t>(arena, n),
                              .nodes = nodes,
                              .listed_size = listed,
                              .words = words,
                              .listed = allocate_array<std::int32_t>(arena, listed),
                              .bits = allocate_array<std::uint64_t>(arena, words)};
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
  for (std::int32_t*& column : a.sorted) column = allocate_array<std::int32_t>(arena, count);
  a.first_of_chunk = allocate_packs(arena, count);
  a.first_of_relation = allocate_packs(arena, count);
  a.uses = uses_of(arena, count);
  a.row_of_use = allocate_array<std::int64_t>(arena, n);
  a.chunks = allocate_array<RelationChunk>(arena, a.most_chunks);
  a.relations = allocate_array<std::int32_t>(arena, most_relations);
  a.relation_chunks = allocate_array<std::int64_t>(arena, most_relations + 1);
  a.places = allocate_array<std::int64_t>(arena, n);
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
