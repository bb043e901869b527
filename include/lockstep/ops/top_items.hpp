#pragma once
#include <cstdint>
#include <functional>
#include <span>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Items as rows of factors, packed once for products with many blocks of users. On a GPU it is a copy of the items.
///
/// shapes   items (I, D)
/// dtypes   f32 | f64
class ItemTable {
 public:
  ItemTable() = default;
  explicit ItemTable(const Tensor& items);
  std::int64_t items() const { return items_; }
  std::int64_t columns() const { return columns_; }
  DType dtype() const { return packed_->dtype(); }

 private:
  friend void top_items(Stream&, Arena&, const ItemTable&, const Tensor&,
                        const std::function<std::span<const std::int32_t>(std::int64_t)>&, std::int64_t, std::int32_t*);
  std::int64_t items_ = 0, columns_ = 0, tile_stride_ = 0;
  OwnedTensor packed_;  ///< tiles of items, one after another
};

/// The best items of each user by inner product, without storing all scores.
///
///   score_ui = sum_d users_ud items_id,   top_u = the K items of the largest scores that are not excluded_u,
///   best first, equal scores by ascending item
///
/// A block of users is multiplied with one tile of items after another, and each score is compared with the K-th best
/// so far while it is in cache. The result of a user depends on neither the other users of the call nor the number of
/// threads. Runs on the calling thread.
///
/// `top` is host memory. For a GPU it must be pinned; it is valid, and `scratch` may be reused, once the stream has
/// finished this call.
///
/// shapes   users (M, D); excluded(m) ascending items of 0..I-1; top (M, K), filled up with -1 where fewer than K items
///          remain
/// dtypes   f32 | f64, that of the table. An item whose score is NaN is never chosen
/// errors   Error if the shapes do not fit, or on a GPU if K is above 2048
void top_items(Stream&, Arena& scratch, const ItemTable& table, const Tensor& users,
               const std::function<std::span<const std::int32_t>(std::int64_t)>& excluded, std::int64_t k,
               std::int32_t* top);

}  // namespace lockstep::ops
