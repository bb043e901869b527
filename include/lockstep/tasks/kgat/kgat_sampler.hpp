#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/device/kernel_arrays.hpp"
#include "lockstep/ops/bpr.hpp"
#include "lockstep/ops/graph_samples.hpp"
#include "lockstep/ops/transr.hpp"
#include "lockstep/tasks/kgat/kgat_data.hpp"

namespace lockstep {

/// The distinct values among 3B row numbers, and the uses of each. Reuses its memory.
class RowUses {
 public:
  /// first[b], second[b] and third[b] of sample b are uses 3b, 3b + 1 and 3b + 2.
  void index(std::span<const std::int32_t> first, std::span<const std::int32_t> second,
             std::span<const std::int32_t> third);
  const std::vector<std::int32_t>& rows() const { return rows_; }        ///< distinct, ascending
  const std::vector<std::int64_t>& use_ptr() const { return use_ptr_; }  ///< (rows + 1)
  const std::vector<std::int32_t>& use() const { return use_; }          ///< by row, ascending
  /// The index in rows() of each use.
  const std::vector<std::int32_t>& place() const { return place_; }

 private:
  /// Sorts keys_ = (row, use) by row; the uses ascend already.
  void sort_by_row();
  std::vector<std::uint64_t> keys_, sorted_;
  std::vector<std::int32_t> rows_, use_, place_;
  std::vector<std::int64_t> use_ptr_;
};

/// A batch for collaborative filtering: users, each with an item that it has and one that it lacks, as rows of one
/// table.
struct CfBatch {
  std::vector<std::int32_t> user, liked, other;  ///< (B)
  RowUses uses;
  void index();
  std::int64_t count() const { return static_cast<std::int64_t>(user.size()); }
  const std::vector<std::int32_t>& rows() const { return uses.rows(); }
  /// The pairs as indices in rows().
  ops::RankedPairs pairs() const;

 private:
  std::vector<std::int32_t> user_at_, liked_at_, other_at_;
};

/// A batch of triples of the knowledge graph, each with a negative tail, which does not form a triple. index() sorts
/// them by relation and cuts the relations into chunks of at most kChunk samples. Sums over the samples of a chunk are
/// the same on any rank.
struct KgBatch {
  static constexpr std::int64_t kChunk = 64;
  using Chunk = ops::RelationChunk;
  std::vector<std::int32_t> head, relation, tail, other;  ///< (M)
  std::vector<Chunk> chunks;
  std::vector<std::int32_t> relations;        ///< distinct, ascending
  std::vector<std::int64_t> relation_chunks;  ///< (relations + 1): where the chunks of each begin
  RowUses uses;
  void index();
  std::int64_t count() const { return static_cast<std::int64_t>(head.size()); }
  const std::vector<std::int32_t>& rows() const { return uses.rows(); }
  /// The row of use u = 3b + role of sample b in an array by chunks, each with its heads, then tails, then other tails.
  std::int64_t row_of_use(std::int32_t u) const {
    const Chunk& chunk = chunks[chunk_at_[u / 3]];
    return 3 * chunk.first + (u % 3) * chunk.count + (u / 3 - chunk.first);
  }

 private:
  std::vector<std::int32_t> chunk_at_;
  std::vector<std::int64_t> order_, next_;
  std::vector<std::int32_t> sorted_;
};

/// Interactions and triples in the memory of a device, whose kernels draw the batches of KgatSampler from them.
struct KgatTables {
  Resident<std::int32_t> users;  ///< users that can be drawn
  Resident<std::int64_t> user_ptr;
  Resident<std::int32_t> item, heads;
  Resident<std::int64_t> node_ptr;
  Resident<std::int32_t> tail, rel;
  ops::InteractionTable interactions(std::int64_t items, std::int64_t first_user) const {
    return {users.span(), user_ptr.span(), item.span(), items, static_cast<std::int32_t>(first_user)};
  }
  ops::TripleTable triples() const { return {heads.span(), node_ptr.span(), tail.span(), rel.span()}; }
};

/// Draws the batch of a step: a function of (seed, step, sample) alone, the same on any rank.
///
///   interactions  distinct users (while there are enough), uniform among those that have an item and lack one; an item
///                 of the user, uniform; an item that the user lacks, uniform
///   triples       distinct heads (while there are enough), uniform among nodes that have triples; one of the head's
///                 triples, uniform; a tail that makes it no triple, uniform (the triple's tail if there is none)
///
/// So users and heads, not interactions and triples, have equal weights, as in the reference programs.
class KgatSampler {
 public:
  /// errors  Error (data): no user that has an item and lacks one, or no triples
  KgatSampler(const KgData& data, std::uint64_t seed);
  /// Users as rows first_user + u, items as rows first_item + i.
  void interactions(std::int64_t step, std::int64_t count, CfBatch& batch, std::int64_t first_user,
                    std::int64_t first_item = 0) const;
  void triples(std::int64_t step, std::int64_t count, KgBatch& batch) const;

  /// The parameters with which a kernel draws the same batch from tables().
  enum class Batch : std::uint8_t { interactions, triples };
  ops::PoolDraw draw_of(Batch kind, std::int64_t step, std::int64_t count) const;
  /// Copies of the data in GPU memory, unless they are too large for it; the triples only if `triples`.
  std::optional<KgatTables> tables(Device device, bool triples) const;

 private:
  const KgData& data_;
  std::uint64_t seed_;
  std::vector<std::int32_t> users_, heads_;
};

}  // namespace lockstep
