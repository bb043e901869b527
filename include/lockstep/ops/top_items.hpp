#pragma once
#include <cstdint>
#include <functional>
#include <span>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Items as rows of factors, packed once for the products with many blocks of users; on a GPU a copy of them.
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

/// The best items of each user by inner product, without ever holding all scores.
///
///   score_ui = sum_d users_ud items_id,   top_u = the K items of the largest scores that are not excluded_u,
///   best first, equal scores by ascending item
///
/// A block of users goes over tiles of items; a score is compared with the K-th best so far while it is in the cache. The
/// result of a user depends on neither the other users of the call nor on threads. Runs on the calling thread.
///
/// `top` is the host's; that of a GPU is pinned, and holds the result when the stream has come past, until when
/// the scratch memory is in use.
///
/// shapes   users (M, D); excluded(m) ascending items of 0..I-1; top (M, K), -1 behind the last where fewer are left
/// dtypes   f32 | f64, that of the table. An item whose score is NaN is never taken
/// errors   Error if the shapes do not fit; on a GPU for K above 2048
void top_items(Stream&, Arena& scratch, const ItemTable& table, const Tensor& users,
               const std::function<std::span<const std::int32_t>(std::int64_t)>& excluded, std::int64_t k,
               std::int32_t* top);

}  // namespace lockstep::ops
