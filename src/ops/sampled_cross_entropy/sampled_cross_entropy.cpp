#include "lockstep/ops/sampled_cross_entropy.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/device/staged_copy.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/common/row_kernels.hpp"
#include "sampled_cross_entropy_kernels.hpp"

namespace lockstep::ops {

namespace {

using Items = std::span<const std::int32_t>;

/// Returns the negatives of a token.
std::size_t check(const char* what, const Tensor& slopes, const Tensor& f, const Tensor& table, Items pos, Items neg) {
  const std::size_t each = pos.empty() ? 0 : neg.size() / pos.size();
  require(f.rows() == std::ssize(pos) && each * pos.size() == neg.size() && table.columns() == f.columns() &&
              slopes.columns() == f.rows() && (pos.empty() || slopes.rows() == static_cast<std::int64_t>(1 + each)),
          what, ": f is ", f.shape(), ", the table ", table.shape(), ", slopes ", slopes.shape(), ", there are ",
          pos.size(), " and ", neg.size(), " items");
  const auto check_item = [&](std::int32_t item) {
    require(item >= 0 && item < table.shape()[0], what, ": item ", item, " is not in 0..", table.shape()[0] - 1);
  };
  const Items readable = host_readable(table.device(), pos);
  for (std::size_t m = 0; m < readable.size(); ++m) {
    if (pos[m] == 0) continue;
    check_item(pos[m]);
    for (const std::int32_t item : neg.subspan(m * each, each)) check_item(item);
  }
  return each;
}

/// Prefetches the rows of a later token: rows of items are scattered, and without prefetches each one waits for the
/// third-level cache or memory.
template <class T>
class RowPrefetch {
 public:
  RowPrefetch(const T* table, std::int64_t columns, Items pos, Items neg, std::size_t each)
      : table_(table), columns_(columns), pos_(pos), neg_(neg), each_(each) {}
  /// Call at token m.
  void operator()(std::size_t m) const {
    const std::size_t later = m + kAhead;
    if (table_ == nullptr || later >= pos_.size() || pos_[later] == 0) return;
    row(pos_[later]);
    for (const std::int32_t item : neg_.subspan(later * each_, each_)) row(item);
  }

 private:
  static constexpr std::size_t kAhead = 8;
  void row(std::int64_t item) const {
    const char* begin = reinterpret_cast<const char*>(table_ + item * columns_);
    for (const char* at = begin; at < reinterpret_cast<const char*>(table_ + (item + 1) * columns_); at += 64)
      __builtin_prefetch(at);
  }
  const T* table_;
  std::int64_t columns_;
  Items pos_, neg_;
  std::size_t each_;
};

}  // namespace

void sampled_cross_entropy_forward(Stream& stream, const Tensor& loss, const Tensor& slopes, const Tensor& f,
                                   const Tensor& table, Items pos, Items neg, double beta) {
  const std::size_t each = check("sampled_cross_entropy", slopes, f, table, pos, neg);
  const std::int64_t c = f.columns();
  on_gpu(f, [&]<class T>() {
    using R = real_t<T>;
    cuda::sampled_cross_entropy_forward<T>(stream, loss, slopes, f, table, c, pos, neg, static_cast<R>(beta));
  });
  on_cpu(f, [&]<class T>() {
    const auto dot = cpu::active_row_kernels<T>().dot;
    const RowPrefetch<T> prefetch(table, c, pos, neg, each);
    double sum = 0;
    for (std::size_t m = 0; m < pos.size(); ++m) {
      prefetch(m);
      const T* x = f.data<T>() + static_cast<std::int64_t>(m) * c;
      for (std::size_t k = 0; k <= each; ++k) {
        T& slope = slopes.data<T>()[k * pos.size() + m];
        slope = 0;
        if (pos[m] == 0) continue;
        const bool next = k == 0;
        const T weight = next ? static_cast<T>(beta) : T{1};
        const T score = dot(c, x, table.data<T>() + (next ? pos[m] : neg[m * each + k - 1]) * c);
        const T z = next ? -score : score;
        const T e = std::exp(-std::abs(z));
        sum += static_cast<double>(weight * (std::max(z, T{0}) + std::log1p(e)));
        const T p = weight * (z > 0 ? 1 / (1 + e) : e / (1 + e));
        slope = next ? -p : p;
      }
    }
    *loss.data<T>() = static_cast<T>(sum);
  });
}

void sampled_cross_entropy_backward(Stream& stream, Target df, const Tensor& dtable, const Tensor& dloss,
                                    const Tensor& slopes, const Tensor& f, const Tensor& table, Items pos, Items neg,
                                    const ItemPlaces& places) {
  const std::size_t each = check("sampled_cross_entropy backward", slopes, f, table, pos, neg);
  require((!df || df.tensor.shape() == f.shape()) && (!dtable || dtable.shape() == table.shape()),
          "sampled_cross_entropy backward: f is ", f.shape(), ", df ", df.tensor.shape(), ", the table ", table.shape(),
          ", its gradient ", dtable.shape());
  const std::int64_t c = f.columns();
  on_gpu(f, [&]<class T>() {
    cuda::sampled_cross_entropy_backward<T>(stream, df.tensor, df.accumulate, dtable, table.rows(), dloss, slopes, f,
                                            table, c, pos, neg);
  });
  on_cpu(f, [&]<class T>() {
    T* const to = df.tensor.data<T>();
    T* const to_table = dtable.data<T>();
    const auto add_row = cpu::active_row_kernels<T>().add;
    const RowPrefetch<T> prefetch(table, c, pos, neg, each);
    const Items to_pos = places.pos.empty() ? pos : places.pos, to_neg = places.neg.empty() ? neg : places.neg;
    const T seed = *dloss.data<T>();
    for (std::size_t m = 0; m < pos.size(); ++m) {
      prefetch(m);
      const std::int64_t row = static_cast<std::int64_t>(m) * c;
      T* dx = to != nullptr ? to + row : nullptr;
      if (dx != nullptr && !df.accumulate) std::fill_n(dx, c, T{0});
      if (pos[m] == 0) continue;
      for (std::size_t k = 0; k <= each; ++k) {
        const std::size_t n = k == 0 ? m : m * each + k - 1;
        const std::int64_t item = (k == 0 ? pos : neg)[n], place = (k == 0 ? to_pos : to_neg)[n];
        const T slope = seed * slopes.data<T>()[k * pos.size() + m];
        const T *e = table.data<T>() + item * c, *x = f.data<T>() + row;
        if (dx != nullptr) add_row(c, dx, e, slope);
        if (to_table != nullptr) add_row(c, to_table + place * c, x, slope);
      }
    }
  });
}

}  // namespace lockstep::ops
