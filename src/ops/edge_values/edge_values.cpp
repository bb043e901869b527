#include "lockstep/ops/edge_values.hpp"

#include <algorithm>

#include "edge_values_kernels.hpp"
#include "ops/common/on_gpu.hpp"

namespace lockstep::ops {

void transpose_edges(Stream& stream, const Tensor& y, const Tensor& x, std::span<const std::int64_t> opposite) {
  const std::int64_t count = x.size();
  require(y.size() == count && opposite.size() == static_cast<std::size_t>(count) && x.dtype() == y.dtype(),
          "transpose_edges: ", count, " values do not fit y of ", y.size(), " and a permutation of ", opposite.size());
  visit_float(x.dtype(), [&]<class T>() {
    const T* from = x.data<const T>();
    T* to = y.data<T>();
    if (on_gpu(x.device(), [&] { cuda::transpose_edges<T>(stream, count, to, from, opposite.data()); })) return;
#pragma omp parallel for schedule(static)
    for (std::int64_t e = 0; e < count; ++e) to[e] = from[opposite[e]];
  });
}

void drop_edges(Stream& stream, const Tensor& y, const Tensor& x, const Dropout& dropout) {
  const std::int64_t count = x.size();
  require(y.size() == count && x.dtype() == y.dtype(), "drop_edges: ", count, " values do not fit y of ", y.size());
  const auto threshold = static_cast<std::uint64_t>(dropout.rate * 0x1p32);
  visit_float(x.dtype(), [&]<class T>() {
    const T* from = x.data<const T>();
    T* to = y.data<T>();
    const T scale = static_cast<T>(1 / (1 - dropout.rate));
    if (on_gpu(x.device(), [&] { cuda::drop_edges<T>(stream, count, to, from, threshold, scale, dropout); })) return;
    const Philox draws = dropout.draws(0);
#pragma omp parallel for schedule(static)
    for (std::int64_t first = 0; first < count; first += 4) {
      const auto words = draws.block(static_cast<std::uint64_t>(first / 4));
      for (std::int64_t e = first; e < std::min(first + 4, count); ++e)
        to[e] = words[e - first] < threshold ? T{0} : from[e] * scale;
    }
  });
}

}  // namespace lockstep::ops
