#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/data/kg_data.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep {

/// An item that a user does not know yet.
struct RankedItem {
  std::int32_t item;
  double score;
};

/// A model that ranks the items of a knowledge-graph data set for its users.
class ItemRanker {
 public:
  virtual ~ItemRanker() = default;
  virtual const KgData& data() const = 0;
  /// The `count` best items outside each user's training items, best first. users in 0 .. data().users - 1
  virtual std::vector<std::vector<RankedItem>> suggest(std::span<const std::int64_t> users, std::int64_t count) = 0;
};

/// What suggest() gives when a score is the inner product of a user's and an item's row: row m of `user_rows` belongs to
/// users[m].
///
/// shapes   items (data.items, D); user_rows (users, D)
/// dtypes   f32 | f64, equal
std::vector<std::vector<RankedItem>> best_items(const KgData& data, const Tensor& items,
                                                std::span<const std::int64_t> users, const Tensor& user_rows,
                                                std::int64_t count);

}  // namespace lockstep
