#pragma once
#include <cstdint>

#include "lockstep/ops/sample_table.hpp"

namespace lockstep::ops::cuda {

/// The pointers of a SampleTable.
template <class T>
struct TableView {
  const float *x = nullptr, *y = nullptr;
  const std::int32_t* order = nullptr;
  const T* moments = nullptr;
  std::int64_t n_in = 0, n_out = 0;
  TableView() = default;
  explicit TableView(const SampleTable& t)
      : x(t.x.data<float>()),
        y(t.y.data<float>()),
        order(t.order.data<std::int32_t>()),
        moments(t.moments.data<T>()),
        n_in(t.x.columns()),
        n_out(t.y.columns()) {}
};

/// The row of a shard's sample i in the table, or in the arrays of the draw.
template <class T>
constexpr std::int64_t row_of(const TableView<T>& table, const RowDraw& draw, std::int64_t i) {
  return draw.x != nullptr ? i : table.order[draw(i)];
}

/// Input or target `column` of row r, normalised. Columns from n_in on are those of y.
template <class T>
constexpr T normalised(const TableView<T>& table, const RowDraw& draw, std::int64_t r, std::int64_t column) {
  const bool input = column < table.n_in;
  const std::int64_t columns = input ? table.n_in : table.n_out, c = input ? column : column - table.n_in;
  const T* moments = table.moments + (input ? 0 : 2 * table.n_in);
  const float* from = draw.x == nullptr ? input ? table.x : table.y : input ? draw.x : draw.y;
  return (static_cast<T>(from[r * columns + c]) - moments[c]) / moments[columns + c];
}

}  // namespace lockstep::ops::cuda
