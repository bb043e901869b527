#include "lockstep/ops/bpr.hpp"

#include <algorithm>
#include <cmath>

#include "bpr_kernels.hpp"
#include "lockstep/device/has_cuda.hpp"

namespace lockstep::ops {

namespace {

/// Sums in f64 over eight interleaved partial sums.
template <class T, class F>
double sum_over(std::int64_t n, const F& term) {
  double sum[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (std::int64_t k = 0; k < 8; ++k) sum[k] += term(i + k);
  for (; i < n; ++i) sum[0] += term(i);
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

}  // namespace

void bpr(Stream& stream, Arena& scratch, const RankedPairs& batch, const Tensor& rows, double l2, const Tensor& slope,
         const Tensor& drows, RankingSums& sums, RankingSums* copy) {
  const std::int64_t count = batch.count(), width = rows.columns();
  require(slope.size() == count && (!drows || drows.shape() == rows.shape()) &&
              batch.use_ptr.size() == static_cast<std::size_t>(rows.rows()) + 1,
          "bpr: ", count, " pairs, rows ", rows.shape(), ", slope ", slope.shape(), ", drows ", drows.shape());
  const std::span terms(
      static_cast<RankingSums*>(scratch.allocate(static_cast<std::size_t>(count) * sizeof(RankingSums))),
      static_cast<std::size_t>(count));
  visit_float(rows.dtype(), [&]<class T>() {
    const T* r = rows.data<const T>();
    T* s = slope.data<T>();
    if constexpr (kHasCuda) {
      if (rows.device().is_cuda()) {
        cuda::bpr<T>(stream, batch, {r, width, l2}, s, drows ? drows.data<T>() : nullptr, terms.data());
        return sum_rankings(stream, sums, copy, terms);
      }
    }
    const auto row = [&](std::int32_t i) { return r + i * width; };
#pragma omp parallel for schedule(static)
    for (std::int64_t b = 0; b < count; ++b) {
      const auto n = static_cast<std::size_t>(b);
      const T *u = row(batch.user[n]), *i = row(batch.liked[n]), *j = row(batch.other[n]);
      const double x = sum_over<T>(width, [&](std::int64_t c) {
        return static_cast<double>(u[c]) * (static_cast<double>(j[c]) - static_cast<double>(i[c]));
      });
      const double squares = sum_over<T>(width, [&](std::int64_t c) {
        const double a = static_cast<double>(u[c]), p = static_cast<double>(i[c]), q = static_cast<double>(j[c]);
        return a * a + p * p + q * q;
      });
      terms[n] = {softplus(x), squares / 2};
      s[b] = static_cast<T>(-1 / (1 + std::exp(-x)));
    }
    sum_rankings(stream, sums, copy, terms);
    if (!drows) return;
    T* d = drows.data<T>();
    const T scale = static_cast<T>(1 / static_cast<double>(count)), decay = static_cast<T>(l2) * scale;
#pragma omp parallel for schedule(dynamic, 64)
    for (std::int64_t u = 0; u < rows.rows(); ++u) {
      const auto n = static_cast<std::size_t>(u);
      if (batch.use_ptr[n] == batch.use_ptr[n + 1]) continue;
      T* to = d + u * width;
      const T* own = r + u * width;
      const auto uses = static_cast<T>(batch.use_ptr[n + 1] - batch.use_ptr[n]);
      for (std::int64_t c = 0; c < width; ++c) to[c] = uses * decay * own[c];
      for (std::int64_t k = batch.use_ptr[n]; k < batch.use_ptr[n + 1]; ++k) {
        const std::int32_t use = batch.use[static_cast<std::size_t>(k)];
        const auto b = static_cast<std::size_t>(use / 3);
        const T g = s[b] * scale;
        const T* user = row(batch.user[b]);
        switch (use % 3) {
          case 0: {
            const T *liked = row(batch.liked[b]), *other = row(batch.other[b]);
            for (std::int64_t c = 0; c < width; ++c) to[c] += g * (liked[c] - other[c]);
            break;
          }
          case 1:
            for (std::int64_t c = 0; c < width; ++c) to[c] += g * user[c];
            break;
          default:
            for (std::int64_t c = 0; c < width; ++c) to[c] -= g * user[c];
        }
      }
    }
  });
}

void sum_rankings(Stream& stream, RankingSums& sums, RankingSums* copy, std::span<const RankingSums> terms) {
  if constexpr (kHasCuda) {
    if (stream.device().is_cuda()) return cuda::sum_rankings(stream, &sums, copy, terms);
  }
  sums = {};
  for (const RankingSums& t : terms) {
    sums.loss += t.loss;
    sums.half_square += t.half_square;
  }
  if (copy != nullptr) *copy = sums;
}

}  // namespace lockstep::ops
