#include "lockstep/ops/positions.hpp"

#include <algorithm>

#include "ops/common/map.hpp"

namespace lockstep::ops {

namespace positions {

/// Positions [first, first + taken) of sequences of `all` positions, of `columns` elements each.
struct Range {
  std::int64_t first, taken, all, columns;
};

/// Row b of y is the range of sequence b of x.
template <class T>
struct Take {
  Range r;
  T* y;
  const T* x;
  LOCKSTEP_MAP void operator()(const auto& at) const {
    at.put(y + at.row * r.taken * r.columns, at.get(x + (at.row * r.all + r.first) * r.columns));
  }
};

/// Adds row b of dy to the range of sequence b of dx.
template <class T>
struct AddBack {
  Range r;
  T* dx;
  const T* dy;
  LOCKSTEP_MAP void operator()(const auto& at) const {
    at.put(dx + (at.row * r.all + r.first) * r.columns, at.get(dy + at.row * r.taken * r.columns), true);
  }
};

/// A row is one position of dx: becomes that of dy, or 0.
template <class T>
struct PutBack {
  Range r;
  T* dx;
  const T* dy;
  LOCKSTEP_MAP void operator()(const auto& at) const {
    const std::int64_t b = quotient(at.row, r.all), t = at.row - b * r.all - r.first;
    const T* from = dy + (b * r.taken + t) * r.columns;
    at.put(dx + at.row * r.columns, t >= 0 && t < r.taken ? at.get(from) : decltype(at.get(from)){});
  }
};

}  // namespace positions

LOCKSTEP_MAPS(positions::Take, positions::AddBack, positions::PutBack)

#ifndef LOCKSTEP_ISA

namespace {

positions::Range range_of(const char* what, const Tensor& x, const Tensor& y, std::int64_t first) {
  const Shape &all = x.shape(), &some = y.shape();
  require(all.rank() == 3 && some.rank() == 3 && all[0] == some[0] && all[2] == some[2] && first >= 0 &&
              first + some[1] <= all[1],
          what, ": ", some, " does not fit positions from ", first, " on of ", all);
  return {.first = first, .taken = some[1], .all = all[1], .columns = all[2]};
}

constexpr int kThreads = 256, kTiles = 8;

/// kTiles blocks per sequence, which return at once if starts_b is 0. Writes x; the row comes from the cache.
template <class T>
__global__ void __launch_bounds__(kThreads)
    fill_sequences_kernel(gpu::Earlier earlier, std::int64_t elements, std::int64_t columns, T* __restrict__ x,
                          const T* __restrict__ row, const std::int32_t* starts) {
  earlier.wait();
  if (starts[blockIdx.x] == 0) return;
  T* to = x + blockIdx.x * elements;
  for (std::int64_t i = std::int64_t{blockIdx.y} * kThreads + threadIdx.x; i < elements; i += kTiles * kThreads)
    to[i] = row[gpu::remainder(i, columns)];
}

}  // namespace

void take_positions(Stream& stream, const Tensor& y, const Tensor& x, std::int64_t first) {
  const positions::Range r = range_of("take_positions", x, y, first);
  map_rows(stream, {y.shape()[0], r.taken * r.columns, r.columns}, {y, x}, [&]<class T>() {
    return positions::Take<T>{r, y, x};
  });
}

void take_positions_backward(Stream& stream, Target dx, const Tensor& dy, std::int64_t first) {
  if (!dx) return;
  const positions::Range r = range_of("take_positions backward", dx.tensor, dy, first);
  if (dx.accumulate)
    map_rows(stream, {dy.shape()[0], r.taken * r.columns, r.columns}, {dx.tensor, dy}, [&]<class T>() {
      return positions::AddBack<T>{r, dx.tensor, dy};
    });
  else
    map_rows(stream, {dx.tensor.rows(), r.columns}, {dx.tensor, dy}, [&]<class T>() {
      return positions::PutBack<T>{r, dx.tensor, dy};
    });
}

void fill_sequences(Stream& stream, const Tensor& x, const Tensor& row, const Tensor& starts) {
  require(x.shape().rank() == 3 && row.shape() == Shape{x.columns()} && starts.shape() == Shape{x.shape()[0]},
          "fill_sequences: x is ", x.shape(), ", the row ", row.shape(), ", starts ", starts.shape(),
          "; these do not fit together");
  const std::int64_t sequences = x.shape()[0], positions = x.shape()[1], columns = x.columns();
  const auto* begins = starts.data<std::int32_t>();
  on_gpu(x, [&]<class T>() {
    gpu::launch(stream, {.grid = {sequences, kTiles}, .block = kThreads}, fill_sequences_kernel<T>, positions * columns,
                columns, x.data<T>(), row.data<T>(), begins);
  });
  on_cpu(x, [&]<class T>() {
    T* to = x.data<T>();
    for (std::int64_t b = 0; b < sequences; ++b, to += positions * columns)
      for (std::int64_t t = 0; begins[b] != 0 && t < positions; ++t)
        std::copy_n(row.data<T>(), columns, to + t * columns);
  });
}

#endif

}  // namespace lockstep::ops
