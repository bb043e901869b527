#include "lockstep/ops/transr.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/ops/gemm.hpp"

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

    const bool wanted = static_cast<bool>(result.drows);
    const Tensor dp = wanted ? allocate(scratch, kType, {3 * n, k}) : Tensor();
    const T* y = translation.data<const T>();
    T* dy = wanted ? result.dtranslation.data<T>() : nullptr;
    if (wanted) std::fill_n(dy, k, T{0});
    double y_square = 0;
    for (std::int64_t c = 0; c < k; ++c) y_square += static_cast<double>(y[c]) * static_cast<double>(y[c]);
    const double scale = 1 / static_cast<double>(total);
    for (std::int64_t i = 0; i < n; ++i) {
      const T *h = result.projected.data<const T>() + i * k, *t = h + n * k, *o = t + n * k;
      double f = 0, g = 0, squares = y_square;
      for (std::int64_t c = 0; c < k; ++c) {
        const double e = static_cast<double>(h[c] + y[c] - t[c]), w = static_cast<double>(h[c] + y[c] - o[c]);
        f += e * e, g += w * w;
        squares += static_cast<double>(h[c]) * static_cast<double>(h[c]) +
                   static_cast<double>(t[c]) * static_cast<double>(t[c]) +
                   static_cast<double>(o[c]) * static_cast<double>(o[c]);
      }
      result.score.data<T>()[i] = static_cast<T>(f), result.score.data<T>()[n + i] = static_cast<T>(g);
      sums.loss += softplus(f - g), sums.half_square += squares / 2;
      if (!wanted) continue;
      // L falls with f(t') and rises with f(t): a = 2 sigmoid(f - f') / total.
      const T a = static_cast<T>(2 * scale / (1 + std::exp(g - f))), decay = static_cast<T>(l2 * scale);
      T *dh = dp.data<T>() + i * k, *dt = dh + n * k, *dother = dt + n * k;
      for (std::int64_t c = 0; c < k; ++c) {
        const T e = h[c] + y[c] - t[c], w = h[c] + y[c] - o[c], pull = a * (e - w);
        dh[c] = pull + decay * h[c];
        dt[c] = decay * t[c] - a * e;
        dother[c] = decay * o[c] + a * w;
        dy[c] += pull + decay * y[c];
      }
    }
    if (!wanted) return;
    gemm_nt(stream, {result.drows}, dp, matrix);
    gemm_tn(stream, {result.dmatrix}, x, dp);
  });
  return sums;
}

}  // namespace lockstep::ops
