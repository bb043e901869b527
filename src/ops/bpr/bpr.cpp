#include "lockstep/ops/bpr.hpp"

#include <cmath>

#include "bpr_kernels.hpp"
#include "ops/common/on_gpu.hpp"

namespace lockstep::ops {

void bpr(Stream& stream, Arena& scratch, const RankedPairs& batch, const Tensor& rows, double l2, const Tensor& slope,
         const Tensor& drows, RankingSums& sums, RankingSums* copy, std::int64_t first) {
  const std::int64_t count = batch.count(), width = rows.columns();
  const bool whole = !drows || drows.shape() == rows.shape();
  require(slope.size() == count &&
              (whole || (!rows.device().is_cuda() && drows.columns() == width && first >= 0 &&
                         first + drows.rows() <= rows.rows())) &&
              batch.use_ptr.size() == static_cast<std::size_t>(rows.rows()) + 1,
          "bpr: ", count, " pairs, rows ", rows.shape(), ", slope ", slope.shape(), ", drows ", drows.shape(),
          " from row ", first);
  const std::span terms = scratch.array<RankingSums>(count);
  on_gpu_in_floats(rows, [&]<class T>() {
    cuda::bpr<T>(stream, batch, {rows, width, l2}, slope, drows, terms.data());
    sum_rankings(stream, sums, copy, terms);
  });
  on_cpu(rows, [&]<class T>() {
    const T* r = rows.data<const T>();
    T* s = slope.data<T>();
    const auto row = [&](std::int32_t i) { return r + i * width; };
    const auto kernels = cpu::active_bpr_kernels<T>();
#pragma omp parallel for schedule(static)
    for (std::int64_t b = 0; b < count; ++b) {
      const auto n = static_cast<std::size_t>(b);
      const auto [x, squares] = kernels.sums(width, row(batch.user[n]), row(batch.liked[n]), row(batch.other[n]));
      terms[n] = {softplus(x), squares / 2};
      s[b] = static_cast<T>(-1 / (1 + std::exp(-x)));
    }
    sum_rankings(stream, sums, copy, terms);
    if (!drows) return;
    T* d = drows.data<T>();
    const T scale = static_cast<T>(1 / static_cast<double>(count)), decay = static_cast<T>(l2) * scale;
#pragma omp parallel for schedule(dynamic, 64)
    for (std::int64_t u = first; u < first + drows.rows(); ++u) {
      const auto n = static_cast<std::size_t>(u);
      if (batch.use_ptr[n] == batch.use_ptr[n + 1]) continue;
      T* to = d + (u - first) * width;
      const auto uses = static_cast<T>(batch.use_ptr[n + 1] - batch.use_ptr[n]);
      kernels.scale(width, to, r + u * width, uses * decay);
      for (std::int64_t k = batch.use_ptr[n]; k < batch.use_ptr[n + 1]; ++k) {
        const std::int32_t use = batch.use[k];
        const auto b = static_cast<std::size_t>(use / 3);
        const T g = s[b] * scale;
        const T* user = row(batch.user[b]);
        switch (use % 3) {
          case 0:
            kernels.add_difference(width, to, row(batch.liked[b]), row(batch.other[b]), g);
            break;
          case 1:
            kernels.add(width, to, user, g);
            break;
          default:
            kernels.add(width, to, user, -g);
        }
      }
    }
  });
}

void sum_rankings(Stream& stream, RankingSums& sums, RankingSums* copy, std::span<const RankingSums> terms) {
  if (on_gpu(stream.device(), [&] { cuda::sum_rankings(stream, &sums, copy, terms); })) return;
  sums = {};
  for (const RankingSums& t : terms) {
    sums.loss += t.loss;
    sums.half_square += t.half_square;
  }
  if (copy != nullptr) *copy = sums;
}

}  // namespace lockstep::ops
