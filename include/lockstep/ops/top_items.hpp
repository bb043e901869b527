#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

struct ItemCodes;

/// Items as rows of factors, prepared once for searches by many blocks of users. On a GPU it is a copy of the items; on
/// the CPU also a copy in 8-bit codes.
///
/// shapes   items (I, D); typical (D) or empty
/// dtypes   f32 | f64, equal
class ItemTable {
 public:
  ItemTable() = default;
  /// typical  a row near most users' rows, such as their mean. The nearer it is, the faster are searches on the CPU;
  ///          their results do not depend on it.
  explicit ItemTable(const Tensor& items, const Tensor& typical = {});
  std::int64_t items() const { return rows_->rows(); }
  std::int64_t columns() const { return rows_->columns(); }
  DType dtype() const { return rows_->dtype(); }

 private:
  friend void top_items(Stream&, Arena&, const ItemTable&, const Tensor&,
                        const std::function<std::span<const std::int32_t>(std::int64_t)>&, std::int64_t, std::int32_t*);
  OwnedTensor rows_;
  std::shared_ptr<const ItemCodes> codes_;  ///< null on a GPU
};

/// The best items of each user by inner product, without storing all scores.
///
///   score_ui = sum_d users_ud items_id,   top_u = the K items of the largest scores that are not excluded_u,
///   best first, equal scores by ascending item
///
/// On the CPU, approximate scores choose candidates: products of 8-bit codes, whose error has a bound for each user. An
/// item is left out only if K others are better by more than twice that bound, so every item of the result is among the
/// candidates. The exact scores of the candidates have the bits of gemm_nt(). The result of a user depends on neither
/// the other users of the call nor the number of threads. Runs on the calling thread.
///
/// `top` is host memory. For a GPU it must be pinned; it is valid, and `scratch` may be reused, once the stream has
/// finished this call.
///
/// shapes   users (M, D); excluded(m) ascending items of 0..I-1; top (M, K), padded with -1 if fewer than K remain
/// dtypes   f32 | f64, as the table. An item whose score is NaN is never chosen
/// errors   Error if the shapes do not fit, or on a GPU if K is above 2048
void top_items(Stream&, Arena& scratch, const ItemTable& table, const Tensor& users,
               const std::function<std::span<const std::int32_t>(std::int64_t)>& excluded, std::int64_t k,
               std::int32_t* top);

}  // namespace lockstep::ops
