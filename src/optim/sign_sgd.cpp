#include "lockstep/optim/sign_sgd.hpp"

#include <algorithm>
#include <numeric>
#include <span>
#include <tuple>

#include "lockstep/device/has_cuda.hpp"
#include "optim/cuda_kernels.hpp"

namespace lockstep {

namespace {

/// Samples grouped by their table row, ascending within each row. A run is the group of one row.
struct Runs {
  std::span<std::int32_t> ids;     ///< table row of each run
  std::span<std::int32_t> starts;  ///< first index of each run in `order`, then the end
  std::span<std::int32_t> order;
};

Runs runs_of(Arena& arena, std::span<const std::int32_t> ids) {
  Runs runs = {arena.array<std::int32_t>(ids.size()), arena.array<std::int32_t>(ids.size() + 1),
               arena.array<std::int32_t>(ids.size())};
  std::iota(runs.order.begin(), runs.order.end(), 0);
  const auto id_of = [&](std::int32_t sample) { return ids[sample]; };
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
void descend(T* table, T* shadow, const T* gradients, std::int64_t columns, const Runs& runs, std::span<T> sum,
             T shrink, T rate) {
  for (std::size_t r = 0; r < runs.ids.size(); ++r) {
    std::fill(sum.begin(), sum.end(), T{0});
    for (std::int32_t i = runs.starts[r]; i < runs.starts[r + 1]; ++i) {
      const T* g = gradients + runs.order[i] * columns;
      for (T& s : sum) s += *g++;
    }
    T* const first = table + runs.ids[r] * columns;
    T* row = first;
    for (const T s : sum) {
      *row = shrink * *row - rate * static_cast<T>((s > 0) - (s < 0));
      ++row;
    }
    if (shadow != nullptr) std::copy(first, row, shadow + runs.ids[r] * columns);
  }
}

}  // namespace

void sign_sgd_rows(Arena& scratch, const Tensor& table, const Tensor& ids, const Tensor& gradients, double lr,
                   double weight_decay, const Tensor& shadow) {
  require(table.shape().rank() == 2 && gradients.columns() == table.columns() && gradients.rows() == ids.size() &&
              (!shadow || shadow.shape() == table.shape()),
          "sign_sgd_rows: the table is ", table.shape(), ", its shadow ", shadow.shape(), ", gradients ",
          gradients.shape(), " of ", ids.size(), " samples; columns must be equal, with one gradient row per sample");
  visit_float(table.dtype(), [&]<class T>() {
    if constexpr (kHasCuda) {
      if (table.device().is_cuda()) {
        return optim_kernels::cuda::sign_descent<T>(Stream(table.device()), {.table = table,
                                                                             .shadow = shadow,
                                                                             .gradients = gradients,
                                                                             .columns = table.columns(),
                                                                             .ids = ids,
                                                                             .samples = ids.size(),
                                                                             .lr = lr,
                                                                             .weight_decay = weight_decay});
      }
    }
    const std::span<const std::int32_t> samples = ids.span<const std::int32_t>();
    for (std::size_t i = 0; i < samples.size(); ++i)
      require(samples[i] >= 0 && samples[i] < table.rows(), "sign_sgd_rows: id ", samples[i], " of sample ", i,
              ": the table has ", table.rows(), " rows");
    descend<T>(table, shadow, gradients, table.columns(), runs_of(scratch, samples), scratch.array<T>(table.columns()),
               static_cast<T>(1 - lr * weight_decay), static_cast<T>(lr));
  });
}

}  // namespace lockstep
