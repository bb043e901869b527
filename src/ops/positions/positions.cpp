#include "lockstep/ops/positions.hpp"

#include <algorithm>

#include "ops/common/on_gpu.hpp"
#include "positions_kernels.hpp"

namespace lockstep::ops {

namespace {
cuda::Runs runs_of(const char* what, const Tensor& x, const Tensor& y, std::int64_t first) {
  const Shape &all = x.shape(), &some = y.shape();
  require(all.rank() == 3 && some.rank() == 3 && all[0] == some[0] && all[2] == some[2] && first >= 0 &&
              first + some[1] <= all[1],
          what, ": ", some, " does not fit positions from ", first, " on of ", all);
  return {.count = all[0], .length = some[1] * all[2], .stride = all[1] * all[2], .offset = first * all[2]};
}
}  // namespace

void take_positions(Stream& stream, const Tensor& y, const Tensor& x, std::int64_t first) {
  const cuda::Runs runs = runs_of("take_positions", x, y, first);
  on_gpu(x, [&]<class T>() { cuda::take_runs<T>(stream, runs, y, x); });
  on_cpu(x, [&]<class T>() {
    T* to = y.data<T>();
    const T* from = x.data<T>();
    for (std::int64_t r = 0; r < runs.count; ++r)
      std::copy_n(from + r * runs.stride + runs.offset, runs.length, to + r * runs.length);
  });
}

void take_positions_backward(Stream& stream, Target dx, const Tensor& dy, std::int64_t first) {
  if (!dx) return;
  const cuda::Runs runs = runs_of("take_positions backward", dx.tensor, dy, first);
  on_gpu(dy, [&]<class T>() { cuda::take_runs_backward<T>(stream, runs, dx.tensor, dx.accumulate, dy); });
  on_cpu(dy, [&]<class T>() {
    T* to = dx.tensor.data<T>();
    const T* from = dy.data<T>();
    if (!dx.accumulate) std::fill_n(to, dx.tensor.size(), T{0});
    for (std::int64_t r = 0; r < runs.count; ++r)
      for (std::int64_t i = 0; i < runs.length; ++i) to[r * runs.stride + runs.offset + i] += from[r * runs.length + i];
  });
}

void fill_sequences(Stream& stream, const Tensor& x, const Tensor& row, const Tensor& starts) {
  require(x.shape().rank() == 3 && row.shape() == Shape{x.columns()} && starts.shape() == Shape{x.shape()[0]},
          "fill_sequences: x is ", x.shape(), ", the row ", row.shape(), ", starts ", starts.shape(),
          "; these do not fit together");
  const std::int64_t sequences = x.shape()[0], positions = x.shape()[1], columns = x.columns();
  on_gpu(x, [&]<class T>() { cuda::fill_sequences<T>(stream, sequences, positions, columns, x, row, starts); });
  on_cpu(x, [&]<class T>() {
    T* to = x.data<T>();
    for (std::int64_t b = 0; b < sequences; ++b) {
      if (starts.data<std::int32_t>()[b] == 0) continue;
      for (std::int64_t t = 0; t < positions; ++t)
        std::copy_n(row.data<T>(), columns, to + (b * positions + t) * columns);
    }
  });
}

}  // namespace lockstep::ops
