#include "lockstep/ops/top_items.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "gemm_kernels.hpp"
#include "top_items_kernels.hpp"

namespace lockstep::ops {

namespace {
/// Items of a tile and users of a block: their scores (128 KiB of f32) and the tile's factors stay in the L2 cache.
constexpr std::int64_t kItemTile = 512, kUserBlock = 64;

/// The best K of the candidates of one user. Items come in ascending order, so that one that merely equals the K-th best
/// is not better than it.
template <class T>
class Best {
 public:
  void reset(std::int64_t k) {
    kernels_ = cpu::active_top_items_kernels<T>();
    k_ = k, count_ = 0;
    threshold_ = -std::numeric_limits<T>::infinity();
    const auto room = static_cast<std::size_t>(2 * k + kItemTile + 1);  // the kernel writes one past what it takes
    item_.resize(room), score_.resize(room);
  }
  /// errors  none; n <= kItemTile
  void offer(std::int64_t n, const T* scores, std::int32_t first) {
    count_ += kernels_.above(n, scores, threshold_, first, item_.data() + count_, score_.data() + count_);
    if (count_ >= 2 * k_) keep_best();
  }
  void finish(std::int32_t* top) {
    keep_best();
    order_.resize(static_cast<std::size_t>(count_));
    for (std::size_t i = 0; i < order_.size(); ++i) order_[i] = {score_[i], item_[i]};
    std::sort(order_.begin(), order_.end(), [](const Scored& a, const Scored& b) {
      return a.score > b.score || (a.score == b.score && a.item < b.item);
    });
    for (std::int64_t i = 0; i < k_; ++i) top[i] = i < count_ ? order_[static_cast<std::size_t>(i)].item : -1;
  }

 private:
  struct Scored {
    T score;
    std::int32_t item;
  };
  void keep_best() {
    if (count_ <= k_) return;
    if (k_ > 0) threshold_ = kernels_.keep(count_, k_, item_.data(), score_.data());
    count_ = k_;
  }

  cpu::TopItemsKernels<T> kernels_{};
  std::int64_t k_ = 0, count_ = 0;
  T threshold_ = 0;  ///< of K kept ones, or as good as that
  std::vector<std::int32_t> item_;
  std::vector<T> score_;
  std::vector<Scored> order_;
};
}  // namespace

ItemTable::ItemTable(const Tensor& items) : items_(items.rows()), columns_(items.columns()) {
  visit_float(items.dtype(), [&]<class T>() {
    const auto& kernels = cpu::active_gemm_kernels<T>();
    tile_stride_ = kernels.packed_size(kItemTile, columns_);
    const std::int64_t tiles = (items_ + kItemTile - 1) / kItemTile;
    packed_ = OwnedTensor(items.dtype(), Shape{std::max<std::int64_t>(tiles, 1) * tile_stride_});
#pragma omp parallel for schedule(static)
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const std::int64_t first = tile * kItemTile, count = std::min(kItemTile, items_ - first);
      kernels.pack_transposed(packed_->data<T>() + tile * tile_stride_, items.data<T>() + first * columns_, columns_,
                              count, columns_, 0, count);
    }
  });
}

void top_items(Stream&, const ItemTable& table, const Tensor& users,
               const std::function<std::span<const std::int32_t>(std::int64_t)>& excluded, std::int64_t k,
               std::int32_t* top) {
  require(users.columns() == table.columns_ && users.dtype() == table.dtype(), "top_items: the items have ",
          table.columns_, " columns of ", name(table.dtype()), ", the users are ", users.shape(), " of ",
          name(users.dtype()));
  visit_float(users.dtype(), [&]<class T>() {
    const auto& kernels = cpu::active_gemm_kernels<T>();
    thread_local std::vector<Best<T>> best;
    thread_local std::vector<std::span<const std::int32_t>> left;  // what is still to be excluded
    best.resize(static_cast<std::size_t>(kUserBlock)), left.resize(static_cast<std::size_t>(kUserBlock));
    T* scores = static_cast<T*>(
        cpu::thread_scratch(cpu::Scratch::partial, static_cast<std::size_t>(kUserBlock * kItemTile) * sizeof(T)));
    for (std::int64_t block = 0; block < users.rows(); block += kUserBlock) {
      const std::int64_t count = std::min(kUserBlock, users.rows() - block);
      for (std::int64_t u = 0; u < count; ++u) {
        best[static_cast<std::size_t>(u)].reset(k);
        left[static_cast<std::size_t>(u)] = excluded(block + u);
      }
      for (std::int64_t first = 0; first < table.items_; first += kItemTile) {
        const std::int64_t width = std::min(kItemTile, table.items_ - first);
        kernels.rows(count, width, table.columns_, scores, users.data<T>() + block * table.columns_,
                     table.packed_->data<T>() + first / kItemTile * table.tile_stride_, false, {});
        for (std::int64_t u = 0; u < count; ++u) {
          T* row = scores + u * width;
          auto& out = left[static_cast<std::size_t>(u)];
          for (; !out.empty() && out.front() < first + width; out = out.subspan(1))
            row[out.front() - first] = -std::numeric_limits<T>::infinity();
          best[static_cast<std::size_t>(u)].offer(width, row, static_cast<std::int32_t>(first));
        }
      }
      for (std::int64_t u = 0; u < count; ++u) best[static_cast<std::size_t>(u)].finish(top + (block + u) * k);
    }
  });
}

}  // namespace lockstep::ops
