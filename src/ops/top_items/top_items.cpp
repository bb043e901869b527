#include "lockstep/ops/top_items.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "lockstep/device/has_cuda.hpp"
#include "lockstep/ops/gemm.hpp"
#include "ops/gemm/gemm_kernels.hpp"
#include "top_items_kernels.hpp"

namespace lockstep::ops {

namespace {
/// Items in a tile and users in a block: their scores (96 KiB in f32) and the tile's factors stay in the L2 cache. With
/// AVX2 the product takes six users at a time, so 96 leaves no partial tile (64 did and was 7 % slower).
constexpr std::int64_t kItemTile = 256, kUserBlock = 96;

/// The best K candidates of one user. Items come in ascending order, so an item that only equals the K-th best is not
/// better.
template <class T>
class Best {
 public:
  void reset(std::int64_t k) {
    kernels_ = cpu::active_top_items_kernels<T>();
    k_ = k;
    count_ = 0;
    threshold_ = -std::numeric_limits<T>::infinity();
    const auto room = static_cast<std::size_t>(2 * k + kItemTile + 1);  // the kernel writes one element too many
    item_.resize(room);
    score_.resize(room);
  }
  /// n <= kItemTile.
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
  T threshold_ = 0;  ///< a score must exceed this to be among the best K
  std::vector<std::int32_t> item_;
  std::vector<T> score_;
  std::vector<Scored> order_;
};

using Excluded = std::function<std::span<const std::int32_t>(std::int64_t)>;

/// Multiplies all users with as many items as keeps the scores in the second-level cache, one tile after another.
template <class T>
void top_items_on_gpu(Stream& stream, Arena& scratch, const Tensor& items, const Tensor& users,
                      const Excluded& excluded, std::int64_t k, std::int32_t* top) {
  constexpr std::int64_t kTileScores = std::int64_t{4} << 20;
  require(k <= cuda::kMostBestItems, "top_items: the best ", k, " items: a GPU finds at most ", cuda::kMostBestItems);
  const std::int64_t count = users.rows();
  if (count == 0 || k == 0) return;
  const auto host = [&]<class U>(U, std::int64_t size) {
    return static_cast<U*>(scratch.host().allocate(static_cast<std::size_t>(size) * sizeof(U)));
  };
  std::int64_t* ptr = host(std::int64_t{}, count + 1);
  ptr[0] = 0;
  for (std::int64_t u = 0; u < count; ++u) ptr[u + 1] = ptr[u] + static_cast<std::int64_t>(excluded(u).size());
  std::int32_t* left = host(std::int32_t{}, ptr[count]);
  for (std::int64_t u = 0; u < count; ++u) std::ranges::copy(excluded(u), left + ptr[u]);
  std::fill_n(top, count * k, -1);

  constexpr DType kType = dtype_of<T>::value;
  const std::int64_t tile = std::clamp<std::int64_t>(kTileScores / count, 1, std::max<std::int64_t>(items.rows(), 1));
  const Tensor scores = allocate(scratch, kType, {count * tile}), best = allocate(scratch, kType, {count, k}),
               found = allocate(scratch, DType::i32, {count}), item = allocate(scratch, DType::i32, {count, k});
  for (std::int64_t first = 0; first < items.rows(); first += tile) {
    const std::int64_t width = std::min(tile, items.rows() - first);
    const Tensor some = scores.slice(0, count * width).reshaped({count, width});
    gemm_nt(stream, {some}, users, items.slice(first, width));
    cuda::keep_best<T>(stream, {.users = count,
                                .first = first,
                                .width = width,
                                .k = k,
                                .scores = some.data<T>(),
                                .left_ptr = ptr,
                                .left_out = left,
                                .best = best.data<T>(),
                                .item = item.data<std::int32_t>(),
                                .found = found.data<std::int32_t>()});
  }
  if (items.rows() > 0) copy_bytes(stream, top, item.raw(), item.size_bytes());
}

}  // namespace

ItemTable::ItemTable(const Tensor& items) : items_(items.rows()), columns_(items.columns()) {
  if (items.device().is_cuda()) {
    packed_ = OwnedTensor(items.dtype(), items.shape(), items.device());
    copy(Stream(items.device()), packed_, items);
    return;
  }
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

void top_items(Stream& stream, Arena& scratch, const ItemTable& table, const Tensor& users,
               const std::function<std::span<const std::int32_t>(std::int64_t)>& excluded, std::int64_t k,
               std::int32_t* top) {
  require(users.columns() == table.columns_ && users.dtype() == table.dtype(), "top_items: the items have ",
          table.columns_, " columns of ", name(table.dtype()), ", the users are ", users.shape(), " of ",
          name(users.dtype()));
  visit_float(users.dtype(), [&]<class T>() {
    if constexpr (kHasCuda) {
      if (users.device().is_cuda()) return top_items_on_gpu<T>(stream, scratch, table.packed_, users, excluded, k, top);
    }
    const auto& kernels = cpu::active_gemm_kernels<T>();
    thread_local std::vector<Best<T>> best;
    thread_local std::vector<std::span<const std::int32_t>> left;  // items still to be excluded
    best.resize(static_cast<std::size_t>(kUserBlock));
    left.resize(static_cast<std::size_t>(kUserBlock));
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
