#include "lockstep/optim/sign_sgd.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

namespace lockstep {

void sign_sgd_rows(const Tensor& table, std::span<const std::int32_t> ids, const Tensor& gradients, double lr,
                   double weight_decay) {
  require(table.shape().rank() == 2 && gradients.columns() == table.columns() &&
              gradients.rows() == static_cast<std::int64_t>(ids.size()),
          "sign_sgd_rows: the table is ", table.shape(), ", gradients ", gradients.shape(), " of ", ids.size(),
          " samples; these do not fit together");
  const std::int64_t columns = table.columns();
  std::vector<std::int64_t> order(ids.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto id_of = [&](std::int64_t i) { return ids[static_cast<std::size_t>(i)]; };
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return id_of(a) < id_of(b); });
  visit_float(table.dtype(), [&]<class T>() {
    std::vector<T> sum(static_cast<std::size_t>(columns));
    for (std::size_t first = 0; first < order.size();) {
      const std::int32_t id = id_of(order[first]);
      require(id >= 0 && id < table.rows(), "sign_sgd_rows: id ", id, " of sample ", order[first], ": the table has ",
              table.rows(), " rows");
      std::fill(sum.begin(), sum.end(), T{0});
      for (; first < order.size() && id_of(order[first]) == id; ++first) {
        const T* g = gradients.data<T>() + order[first] * columns;
        for (std::int64_t c = 0; c < columns; ++c) sum[static_cast<std::size_t>(c)] += g[c];
      }
      T* row = table.data<T>() + id * columns;
      const T shrink = static_cast<T>(1 - lr * weight_decay), rate = static_cast<T>(lr);
      for (std::int64_t c = 0; c < columns; ++c) {
        const T g = sum[static_cast<std::size_t>(c)];
        row[c] = shrink * row[c] - rate * static_cast<T>((g > 0) - (g < 0));
      }
    }
  });
}

}  // namespace lockstep
