#include "lockstep/optim/sign_sgd.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "lockstep/device/has_cuda.hpp"
#include "optim/cuda_kernels.hpp"

namespace lockstep {

namespace {

template <class T>
std::span<T> take(Arena& arena, std::size_t count) {
  return {static_cast<T*>(arena.allocate(count * sizeof(T))), count};
}

/// Samples grouped by their table row, ascending within each row. A run is the group of one row.
struct Runs {
  std::span<std::int32_t> ids;     ///< table row of each run
  std::span<std::int32_t> starts;  ///< first index of each run in `order`, then the end
  std::span<std::int32_t> order;
};

Runs runs_of(Arena& arena, std::span<const std::int32_t> ids) {
  Runs runs = {take<std::int32_t>(arena, ids.size()), take<std::int32_t>(arena, ids.size() + 1),
               take<std::int32_t>(arena, ids.size())};
  std::iota(runs.order.begin(), runs.order.end(), 0);
  const auto id_of = [&](std::int32_t sample) { return ids[static_cast<std::size_t>(sample)]; };
  std::sort(runs.order.begin(), runs.order.end(),
            [&](std::int32_t a, std::int32_t b) { return std::tuple(id_of(a), a) < std::tuple(id_of(b), b); });
  std::size_t count = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::int32_t id = id_of(runs.order[i]);
    if (i > 0 && id == runs.ids[count - 1]) continue;
    runs.ids[count] = id;
    runs.starts[count++] = static_cast<std::int32_t>(i);
  }
  runs.starts[count] = static_cast<std::int32_t>(ids.size());
  runs.ids = runs.ids.first(count);
  return runs;
}

template <class T>
void descend(T* table, const T* gradients, std::int64_t columns, const Runs& runs, std::span<T> sum, T shrink, T rate) {
  for (std::size_t r = 0; r < runs.ids.size(); ++r) {
    std::fill(sum.begin(), sum.end(), T{0});
    for (std::int32_t i = runs.starts[r]; i < runs.starts[r + 1]; ++i) {
      const T* g = gradients + runs.order[static_cast<std::size_t>(i)] * columns;
      for (T& s : sum) s += *g++;
    }
    T* row = table + runs.ids[r] * columns;
    for (const T s : sum) {
      *row = shrink * *row - rate * static_cast<T>((s > 0) - (s < 0));
      ++row;
    }
  }
}

}  // namespace

void sign_sgd_rows(Arena& scratch, const Tensor& table, std::span<const std::int32_t> ids, const Tensor& gradients,
                   double lr, double weight_decay) {
  require(table.shape().rank() == 2 && gradients.columns() == table.columns() &&
              gradients.rows() == static_cast<std::int64_t>(ids.size()),
          "sign_sgd_rows: the table is ", table.shape(), ", gradients ", gradients.shape(), " of ", ids.size(),
          " samples; columns must be equal, with one gradient row per sample");
  for (std::size_t i = 0; i < ids.size(); ++i)
    require(ids[i] >= 0 && ids[i] < table.rows(), "sign_sgd_rows: id ", ids[i], " of sample ", i, ": the table has ",
            table.rows(), " rows");
  const std::int64_t columns = table.columns();
  const Runs runs = runs_of(scratch.host(), ids);
  visit_float(table.dtype(), [&]<class T>() {
    const T shrink = static_cast<T>(1 - lr * weight_decay), rate = static_cast<T>(lr);
    if constexpr (kHasCuda) {
      if (table.device().is_cuda()) {
        return optim_kernels::cuda::sign_descent(Stream(table.device()), table.data<T>(), gradients.data<T>(), columns,
                                                 static_cast<std::int64_t>(runs.ids.size()), runs.ids.data(),
                                                 runs.starts.data(), runs.order.data(), shrink, rate);
      }
    }
    descend(table.data<T>(), gradients.data<T>(), columns, runs,
            take<T>(scratch.host(), static_cast<std::size_t>(columns)), shrink, rate);
  });
}

}  // namespace lockstep
