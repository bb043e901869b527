#pragma once
#include <cstdint>

#include "lockstep/device/device.hpp"
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

template <class T>
void take_samples(const Stream& stream, std::int64_t count, T* z, T* t, const TableView<T>& table, const RowDraw* draw);

}  // namespace lockstep::ops::cuda
