#include "lockstep/ops/transr.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/ops/gemm.hpp"
#include "transr_kernels.hpp"

namespace lockstep::ops {

namespace {
double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }
}  // namespace

RankingSums transr(Stream& stream, Arena& scratch, const RelationSamples& samples, const Tensor& table,
                   const Tensor& matrix, const Tensor& translation, double l2, std::int64_t total,
                   const TransrResult& result) {
  const std::int64_t n = samples.count(), d = table.columns(), k = matrix.columns();
  require(matrix.rows() == d && translation.size() == k && result.projected.shape() == Shape{3 * n, k} &&
              result.score.size() == 2 * n,
          "transr: ", n, " samples, table ", table.shape(), ", matrix ", matrix.shape(), ", translation ",
          translation.shape(), ", projected ", result.projected.shape());
  RankingSums sums;
  visit_float(table.dtype(), [&]<class T>() {
    constexpr DType kType = dtype_of<T>::value;
    const Tensor x = allocate(scratch, kType, {3 * n, d});
    T* to = x.data<T>();
    for (const auto& nodes : {samples.head, samples.tail, samples.other})
      for (const std::int32_t node : nodes) to = std::copy_n(table.data<const T>() + node * d, d, to);
    gemm_nn(stream, {result.projected}, x, matrix);

    const auto kernels = cpu::active_transr_kernels<T>();
    const T* y = translation.data<const T>();
    const Tensor distances = allocate(scratch, DType::f64, {3, n});
    double *f = distances.data<double>(), *g = f + n, *squares = g + n;
    kernels.distances(n, k, f, g, squares, result.projected.data<const T>(), y);
    double y_square = 0;
    for (std::int64_t c = 0; c < k; ++c) y_square += static_cast<double>(y[c]) * static_cast<double>(y[c]);
    // The loss falls with f(t') and rises with f(t): slope = 2 sigmoid(f(t) - f(t')) / total.
    const double scale = 1 / static_cast<double>(total);
    const Tensor slope = allocate(scratch, kType, {n});
    for (std::int64_t i = 0; i < n; ++i) {
      result.score.data<T>()[i] = static_cast<T>(f[i]), result.score.data<T>()[n + i] = static_cast<T>(g[i]);
      sums.loss += softplus(f[i] - g[i]), sums.half_square += (squares[i] + y_square) / 2;
      slope.data<T>()[i] = static_cast<T>(2 * scale / (1 + std::exp(g[i] - f[i])));
    }
    if (!result.drows) return;
    const Tensor dp = allocate(scratch, kType, {3 * n, k});
    T* dy = result.dtranslation.data<T>();
    std::fill_n(dy, k, T{0});
    kernels.pull(n, k, dp.data<T>(), dy, result.projected.data<const T>(), y, slope.data<const T>(),
                 static_cast<T>(l2 * scale));
    gemm_nt(stream, {result.drows}, dp, matrix);
    gemm_tn(stream, {result.dmatrix}, x, dp);
  });
  return sums;
}

}  // namespace lockstep::ops
