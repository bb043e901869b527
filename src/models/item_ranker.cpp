#include "lockstep/models/item_ranker.hpp"

#include "lockstep/ops/top_items.hpp"

namespace lockstep {

std::vector<std::vector<RankedItem>> best_items(const KgData& data, const Tensor& items,
                                                std::span<const std::int64_t> users, const Tensor& user_rows,
                                                std::int64_t count) {
  std::vector<std::int32_t> top(users.size() * static_cast<std::size_t>(count));
  const auto known = [&](std::int64_t m) { return data.train.of(users[static_cast<std::size_t>(m)]); };
  Stream stream;
  Arena scratch;
  ops::top_items(stream, scratch, ops::ItemTable(items), user_rows, known, count, top.data());
  std::vector<std::vector<RankedItem>> lists(users.size());
  visit_float(items.dtype(), [&]<class T>() {
    for (std::size_t i = 0; i < top.size(); ++i) {
      if (top[i] < 0) continue;  // the user knows all others
      const std::size_t m = i / static_cast<std::size_t>(count);
      const T *a = user_rows.data<const T>() + static_cast<std::int64_t>(m) * items.columns(),
              *b = items.data<const T>() + top[i] * items.columns();
      double score = 0;
      for (std::int64_t c = 0; c < items.columns(); ++c) score += static_cast<double>(a[c]) * static_cast<double>(b[c]);
      lists[m].push_back({top[i], score});
    }
  });
  return lists;
}

}  // namespace lockstep
