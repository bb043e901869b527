#pragma once
#include <cstdint>

#include "lockstep/device/device.hpp"
#include "lockstep/ops/graph_samples.hpp"

namespace lockstep::ops::cuda {

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

void pair_batch(const Stream& stream, const PairArrays& arrays);
void triple_batch(const Stream& stream, const TripleArrays& arrays);

}  // namespace lockstep::ops::cuda
