#include "lockstep/ops/transr.hpp"

#include <cmath>

#include "lockstep/ops/gemm.hpp"
#include "ops/common/on_gpu.hpp"
#include "transr_kernels.hpp"

namespace lockstep::ops {

namespace {

/// Arrays of one chunk. drows is empty when no gradient is computed.
struct ChunkArrays {
  Tensor projected, score, drows, dmatrix, dtranslation;
};

/// One chunk, on the calling thread.
template <class T>
RankingSums transr_chunk(Stream& stream, Arena& scratch, const RelationSamples& samples, const RelationChunk& chunk,
                         const Tensor& table, const Tensor& matrix, const T* y, double l2, double scale,
                         const ChunkArrays& result) {
  constexpr DType kType = dtype_of<T>::value;
  const std::int64_t n = chunk.count, d = table.columns(), k = matrix.columns();
  RankingSums sums;
  const Tensor x = allocate(scratch, kType, {3 * n, d});
  T* to = x.data<T>();
  for (const auto& nodes : {samples.head, samples.tail, samples.other})
    for (const std::int32_t node : nodes.subspan(chunk.first, n))
      to = std::copy_n(table.data<const T>() + node * d, d, to);
  gemm_nn(stream, {result.projected}, x, matrix);

  const auto kernels = cpu::active_transr_kernels<T>();
  const Tensor distances = allocate(scratch, DType::f64, {3, n});
  double *f = distances.data<double>(), *g = f + n, *squares = g + n;
  kernels.distances(n, k, f, g, squares, result.projected, y);
  double y_square = 0;
  for (std::int64_t c = 0; c < k; ++c) y_square += static_cast<double>(y[c]) * static_cast<double>(y[c]);
  // The loss falls with f(t') and rises with f(t): slope = 2 sigmoid(f(t) - f(t')) / total.
  const Tensor slope = allocate(scratch, kType, {n});
  for (std::int64_t i = 0; i < n; ++i) {
    if (result.score) {
      result.score.data<T>()[i] = static_cast<T>(f[i]);
      result.score.data<T>()[n + i] = static_cast<T>(g[i]);
    }
    sums.loss += softplus(f[i] - g[i]);
    sums.half_square += (squares[i] + y_square) / 2;
    slope.data<T>()[i] = static_cast<T>(2 * scale / (1 + std::exp(g[i] - f[i])));
  }
  if (!result.drows) return sums;
  const Tensor dp = allocate(scratch, kType, {3 * n, k});
  T* dy = result.dtranslation.data<T>();
  std::fill_n(dy, k, T{0});
  kernels.pull(n, k, dp, dy, result.projected, y, slope, static_cast<T>(l2 * scale));
  gemm_nt(stream, {result.drows}, dp, matrix);
  gemm_tn(stream, {result.dmatrix}, x, dp);
  return sums;
}

}  // namespace

void transr(Stream& stream, const RelationSamples& samples, const Tensor& table, const Tensor& matrices,
            const Tensor& translations, double l2, std::int64_t total, const TransrResult& result,
            std::span<RankingSums> sums) {
  const auto chunks = std::ssize(samples.chunks);
  const std::int64_t d = table.columns(), k = translations.columns();
  require(matrices.shape() == Shape{translations.rows(), d, k} && sums.size() == samples.chunks.size() &&
              (!result.drows || (result.drows.columns() == d && result.drelations.shape() == Shape{chunks, d * k + k})),
          "transr: the shapes do not fit: table ", table.shape(), ", matrices ", matrices.shape(), ", translations ",
          translations.shape(), ", ", chunks, " chunks, their gradients ", result.drelations.shape());
  const double scale = 1 / static_cast<double>(total);
  on_gpu_in_floats(table, [&]<class T>() {
    cuda::transr<T>(stream, samples,
                    {d, k, table, matrices, translations, result.projected, result.score, result.drows,
                     result.drelations, l2, scale},
                    sums.data());
  });
  on_cpu(table, [&]<class T>() {
    constexpr DType kType = dtype_of<T>::value;
#pragma omp parallel for schedule(dynamic)
    for (std::int64_t c = 0; c < chunks; ++c) {
      thread_local Arena scratch;
      scratch.reset();
      const RelationChunk& chunk = samples.chunks[c];
      const auto rows = [&](const Tensor& t) { return t ? t.slice(3 * chunk.first, 3 * chunk.count) : Tensor(); };
      ChunkArrays of = {
          .projected = result.projected ? rows(result.projected) : allocate(scratch, kType, {3 * chunk.count, k}),
          .score = result.score ? result.score.slice(2 * chunk.first, 2 * chunk.count) : Tensor(),
          .drows = rows(result.drows),
          .dmatrix = {},
          .dtranslation = {}};
      if (of.drows) {
        const Tensor relation = result.drelations.slice(c, 1).reshaped({d * k + k});
        of.dmatrix = relation.slice(0, d * k).reshaped({d, k});
        of.dtranslation = relation.slice(d * k, k);
      }
      Stream serial;
      sums[c] =
          transr_chunk<T>(serial, scratch, samples, chunk, table, matrices.slice(chunk.relation, 1).reshaped({d, k}),
                          translations.data<const T>() + chunk.relation * k, l2, scale, of);
    }
  });
}

}  // namespace lockstep::ops
