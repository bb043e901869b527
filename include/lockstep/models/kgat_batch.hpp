#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/data/kg_data.hpp"
#include "lockstep/ops/bpr.hpp"
#include "lockstep/ops/transr.hpp"

namespace lockstep {

/// The distinct values among 3B row numbers, and where each is used. Memory is kept from batch to batch.
class RowUses {
 public:
  /// Of sample b, first[b], second[b] and third[b] are uses 3b, 3b + 1 and 3b + 2.
  void index(std::span<const std::int32_t> first, std::span<const std::int32_t> second,
             std::span<const std::int32_t> third);
  const std::vector<std::int32_t>& rows() const { return rows_; }        ///< distinct, ascending
  const std::vector<std::int64_t>& use_ptr() const { return use_ptr_; }  ///< (rows + 1)
  const std::vector<std::int32_t>& use() const { return use_; }          ///< by row, ascending
  /// Where in rows() use u of a sample's three lies: [3b + u].
  const std::vector<std::int32_t>& place() const { return place_; }

 private:
  /// Sorts keys_, rows above uses, whose uses ascend already.
  void sort_by_row();
  std::vector<std::uint64_t> keys_, sorted_;
  std::vector<std::int32_t> rows_, use_, place_;
  std::vector<std::int64_t> use_ptr_;
};

/// Interactions to rank: each user with an item that it has and one that it has not, as rows of one table.
struct CfBatch {
  std::vector<std::int32_t> user, liked, other;  ///< (B)
  RowUses uses;
  void index();
  std::int64_t count() const { return static_cast<std::int64_t>(user.size()); }
  const std::vector<std::int32_t>& rows() const { return uses.rows(); }
  /// The pairs as places in rows().
  ops::RankedPairs pairs() const;

 private:
  std::vector<std::int32_t> user_at_, liked_at_, other_at_;
};

/// Triples to rank, each with a tail that makes it none. index() sorts them by relation and cuts the relations into
/// chunks of at most kChunk samples: what depends on the samples of one chunk is summed in it, whoever computes it.
struct KgBatch {
  static constexpr std::int64_t kChunk = 64;
  using Chunk = ops::RelationChunk;
  std::vector<std::int32_t> head, relation, tail, other;  ///< (M)
  std::vector<Chunk> chunks;
  std::vector<std::int32_t> relations;        ///< distinct, ascending
  std::vector<std::int64_t> relation_chunks;  ///< (relations + 1): where each one's chunks begin
  RowUses uses;
  void index();
  std::int64_t count() const { return static_cast<std::int64_t>(head.size()); }
  const std::vector<std::int32_t>& rows() const { return uses.rows(); }
  /// Where use u = 3b + role of sample b lies in an array by chunks, each with its heads, then tails, then other tails.
  std::int64_t row_of_use(std::int32_t u) const {
    const Chunk& chunk = chunks[static_cast<std::size_t>(chunk_at_[static_cast<std::size_t>(u / 3)])];
    return 3 * chunk.first + (u % 3) * chunk.count + (u / 3 - chunk.first);
  }

 private:
  std::vector<std::int32_t> chunk_at_;
  std::vector<std::int64_t> order_, next_;
  std::vector<std::int32_t> sorted_;
};

/// Draws the batches of a step: a function of (seed, step, sample) alone, the same on any rank.
///
///   interactions  distinct users (while there are enough), uniform among those that have an item and lack one; an item
///                 of the user, uniform; an item that the user has not, uniform
///   triples       distinct heads (while there are enough), uniform among nodes that have triples; one of the head's
///                 triples, uniform; a node that makes it none, uniform (the tail itself if there is none)
///
/// So users and heads, not interactions and triples, weigh equally, as in the reference programs.
class KgatSampler {
 public:
  /// errors  Error (data): no user that has an item and lacks one, or no triples
  KgatSampler(const KgData& data, std::uint64_t seed);
  /// Users as rows first_user + u, items as rows first_item + i.
  void interactions(std::int64_t step, std::int64_t count, CfBatch& batch, std::int64_t first_user,
                    std::int64_t first_item = 0) const;
  void triples(std::int64_t step, std::int64_t count, KgBatch& batch) const;

 private:
  const KgData& data_;
  std::uint64_t seed_;
  std::vector<std::int32_t> users_, heads_;
};

}  // namespace lockstep
