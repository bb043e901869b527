#include "lockstep/ops/transr.hpp"

#include "lockstep/ops/dispatch.hpp"

namespace lockstep::ops::cpu {

/// Kernels around the products of TransR. `projected` and `dp` hold (n, k) heads, then tails, then corrupted tails.
template <class T>
struct TransrKernels {
  /// f = |h + y - t|^2, g = |h + y - t'|^2, squares = |h|^2 + |t|^2 + |t'|^2 of each sample.
  void (*distances)(std::int64_t n, std::int64_t k, double* f, double* g, double* squares, const T* projected,
                    const T* y);
  /// The gradient of sum_i slope_i (f_i - g_i) / 2 + decay times half the squares of projections and y: stored in dp,
  /// added to dy.
  void (*pull)(std::int64_t n, std::int64_t k, T* dp, T* dy, const T* projected, const T* y, const T* slope, T decay);
};

LOCKSTEP_KERNELS(TransrKernels, transr_kernels)

}  // namespace lockstep::ops::cpu

#ifdef LOCKSTEP_ISA

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

/// Partial sums, added in one order for every vector width.
constexpr std::int64_t kPartials = 8;

double sum_of(const double (&partial)[kPartials]) {
  return ((partial[0] + partial[1]) + (partial[2] + partial[3])) +
         ((partial[4] + partial[5]) + (partial[6] + partial[7]));
}

template <class T>
void distances(std::int64_t n, std::int64_t k, double* f, double* g, double* squares, const T* projected, const T* y) {
  for (std::int64_t i = 0; i < n; ++i) {
    const T *h = projected + i * k, *t = h + n * k, *o = t + n * k;
    double near[kPartials] = {}, far[kPartials] = {}, square[kPartials] = {};
    const auto add = [&](std::int64_t c, std::int64_t partial) {
      const double a = static_cast<double>(h[c]), b = static_cast<double>(t[c]), d = static_cast<double>(o[c]);
      const double e = static_cast<double>(h[c] + y[c] - t[c]), w = static_cast<double>(h[c] + y[c] - o[c]);
      near[partial] += e * e;
      far[partial] += w * w;
      square[partial] += (a * a + b * b) + d * d;
    };
    std::int64_t c = 0;
    for (; c + kPartials <= k; c += kPartials)
      for (std::int64_t partial = 0; partial < kPartials; ++partial) add(c + partial, partial);
    for (; c < k; ++c) add(c, 0);
    f[i] = sum_of(near);
    g[i] = sum_of(far);
    squares[i] = sum_of(square);
  }
}

template <class T>
void pull(std::int64_t n, std::int64_t k, T* __restrict__ dp, T* __restrict__ dy, const T* __restrict__ projected,
          const T* __restrict__ y, const T* __restrict__ slope, T decay) {
  for (std::int64_t i = 0; i < n; ++i) {
    const T *h = projected + i * k, *t = h + n * k, *o = t + n * k;
    T *dh = dp + i * k, *dt = dh + n * k, *dother = dt + n * k;
    const T a = slope[i];
#pragma GCC ivdep
    for (std::int64_t c = 0; c < k; ++c) {
      const T e = h[c] + y[c] - t[c], w = h[c] + y[c] - o[c], both = a * (e - w);
      dh[c] = both + decay * h[c];
      dt[c] = decay * t[c] - a * e;
      dother[c] = decay * o[c] + a * w;
      dy[c] += both + decay * y[c];
    }
  }
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(TransrKernels, transr_kernels, distances<T>, pull<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA

#else
#include <algorithm>
#include <cmath>

#include "lockstep/device/cuda_reduce.hpp"
#include "lockstep/ops/gemm.hpp"
#include "ops/common/on_gpu.hpp"

namespace lockstep::ops::cuda {

template <class T>
struct TransrArrays {
  std::int64_t d, k;
  const T *table, *matrices, *translations;
  T *projected, *score, *drows, *drelations;  ///< null: not computed
  double l2, scale;                           ///< scale: 1 / total
};
namespace {

using gpu::kWarp;
constexpr int kThreads = 256, kWarps = kThreads / kWarp;
/// The most samples that a block holds in shared memory at once, and rows of a matrix that a thread multiplies at once.
constexpr int kTile = 16, kRows = 4;

/// The layout of a block's shared memory: rows x of the table (3 tile, d); their projections (3 tile, k), later
/// overwritten by their gradients; and the relation's matrix with rows k + 1 elements apart, so that neither its rows
/// nor its columns share a bank. A matrix that is too large stays in device memory.
struct Layout {
  int tile;
  bool matrix;
  template <class T>
  static std::size_t size_bytes(int tile, bool matrix, std::int64_t d, std::int64_t k) {
    return static_cast<std::size_t>(3 * tile * (d + k) + (matrix ? d * (k + 1) : 0)) * sizeof(T);
  }
};

/// out_rc = sum over i of left(r, i) right(i, c), for r < rows and c < columns. A thread computes kRows rows of one
/// column at a time, so each value of `right` is used in kRows sums. put(r, c, sum) receives the sums.
template <class T, class Left, class Right, class Put>
__device__ void multiply(int rows, int inner, int columns, const Left& left, const Right& right, const Put& put) {
  const int items = (rows + kRows - 1) / kRows * columns;
  for (int item = static_cast<int>(threadIdx.x); item < items; item += kThreads) {
    const int first = item / columns * kRows, c = item % columns;
    int row[kRows];
#pragma unroll
    for (int q = 0; q < kRows; ++q) row[q] = first + q < rows ? first + q : rows - 1;
    T sum[kRows] = {};
#pragma unroll 4
    for (int i = 0; i < inner; ++i) {
      const T value = right(i, c);
#pragma unroll
      for (int q = 0; q < kRows; ++q) sum[q] = fma(left(row[q], i), value, sum[q]);
    }
#pragma unroll
    for (int q = 0; q < kRows; ++q) {
      if (first + q < rows) put(first + q, c, sum[q]);
    }
  }
}

/// One block per chunk of at most 64 samples of one relation, 16 samples at a time: gathers 48 rows, projects them,
/// scores, and computes the gradients of the rows and of the relation, all in shared memory (41 KiB in f32 for d = k =
/// 64). A full chunk costs 3 MFLOP and 100 KB of traffic. A batch has about a hundred chunks: one wave of blocks in one
/// launch, where library products would take three launches for each relation. Sums over samples run in their order.
template <class T>
__global__ void __launch_bounds__(kThreads)
    transr_kernel(gpu::Earlier earlier, RelationSamples samples, TransrArrays<T> a, RankingSums* __restrict__ sums,
                  Layout layout) {
  earlier.wait();
  __shared__ double sm_loss[kTile], sm_half_square[kTile];
  __shared__ T sm_slope[kTile];
  const RelationChunk chunk = samples.chunks.data()[blockIdx.x];
  const std::int64_t n = chunk.count;
  if (n == 0) {  // padding
    if (threadIdx.x == 0) sums[blockIdx.x] = {};
    return;
  }
  const int d = static_cast<int>(a.d), k = static_cast<int>(a.k);
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  T* sm_x = reinterpret_cast<T*>(sm_bytes);
  T* sm_p = sm_x + 3 * layout.tile * d;
  T* sm_matrix = sm_p + 3 * layout.tile * k;
  const T *matrix = a.matrices + chunk.relation * a.d * a.k, *y = a.translations + chunk.relation * a.k;
  int pitch = k;
  if (layout.matrix) {
    for (int i = static_cast<int>(threadIdx.x); i < d * k; i += kThreads)
      sm_matrix[i / k * (k + 1) + i % k] = matrix[i];
    matrix = sm_matrix;
    pitch = k + 1;
  }
  T *dmatrix = a.drelations + blockIdx.x * (a.d * a.k + a.k), *dtranslation = dmatrix + d * k;
  const bool wanted = a.drows != nullptr;
  RankingSums total;

  for (std::int64_t first = 0; first < n; first += layout.tile) {
    const int m = n - first < layout.tile ? static_cast<int>(n - first) : layout.tile, rows = 3 * m;
    // Row r of the tile holds its samples' heads, tails, then corrupted tails; this is its row among those of the
    // chunk.
    const auto place = [&](int r) { return 3 * chunk.first + r / m * n + first + r % m; };
    __syncthreads();  // the previous tile is no longer in use
    for (int r = warp; r < rows; r += kWarps) {
      const auto& nodes = r < m ? samples.head : r < 2 * m ? samples.tail : samples.other;
      const T* from = a.table + nodes.data()[chunk.first + first + r % m] * d;
      for (int c = lane; c < d; c += kWarp) sm_x[r * d + c] = from[c];
    }
    __syncthreads();
    multiply<T>(
        rows, d, k, [&](int r, int i) { return sm_x[r * d + i]; }, [&](int i, int c) { return matrix[i * pitch + c]; },
        [&](int r, int c, T value) {
          sm_p[r * k + c] = value;
          if (a.projected != nullptr) a.projected[place(r) * k + c] = value;
        });
    __syncthreads();

    for (int i = warp; i < m; i += kWarps) {
      const T *h = sm_p + i * k, *t = h + m * k, *o = t + m * k;
      double f = 0, g = 0, squares = 0;
      for (int c = lane; c < k; c += kWarp) {
        const double e = static_cast<double>(h[c] + y[c] - t[c]), w = static_cast<double>(h[c] + y[c] - o[c]);
        const double head = static_cast<double>(h[c]), tail = static_cast<double>(t[c]),
                     other = static_cast<double>(o[c]), shift = static_cast<double>(y[c]);
        f += e * e;
        g += w * w;
        squares += shift * shift + head * head + tail * tail + other * other;
      }
      f = gpu::warp_reduce(f);
      g = gpu::warp_reduce(g);
      squares = gpu::warp_reduce(squares);
      if (lane != 0) continue;
      sm_loss[i] = softplus(f - g);
      sm_half_square[i] = squares / 2;
      // The loss falls with f(t') and rises with f(t): slope = 2 sigmoid(f - f') / total.
      sm_slope[i] = static_cast<T>(2 * a.scale / (1 + exp(g - f)));
      if (a.score != nullptr) {
        T* score = a.score + 2 * chunk.first + first + i;
        score[0] = static_cast<T>(f);
        score[n] = static_cast<T>(g);
      }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int i = 0; i < m; ++i) {
        total.loss += sm_loss[i];
        total.half_square += sm_half_square[i];
      }
    }
    if (!wanted) continue;

    const T decay = static_cast<T>(a.l2 * a.scale);
    for (int c = static_cast<int>(threadIdx.x); c < k; c += kThreads) {
      T dy = first == 0 ? T{0} : dtranslation[c];
      for (int i = 0; i < m; ++i) {
        T *h = sm_p + i * k + c, *t = h + m * k, *o = t + m * k;
        const T e = *h + y[c] - *t, w = *h + y[c] - *o, pull = sm_slope[i] * (e - w);
        *h = pull + decay * *h;
        *t = decay * *t - sm_slope[i] * e;
        *o = decay * *o + sm_slope[i] * w;
        dy += pull + decay * y[c];
      }
      dtranslation[c] = dy;
    }
    __syncthreads();
    multiply<T>(
        rows, k, d, [&](int r, int i) { return sm_p[r * k + i]; }, [&](int i, int c) { return matrix[c * pitch + i]; },
        [&](int r, int c, T value) { a.drows[place(r) * d + c] = value; });
    multiply<T>(
        d, rows, k, [&](int r, int i) { return sm_x[i * d + r]; }, [&](int i, int c) { return sm_p[i * k + c]; },
        [&](int r, int c, T value) {
          T& sum = dmatrix[r * k + c];
          sum = first == 0 ? value : sum + value;
        });
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

}  // namespace

template <class T>
void transr(const Stream& stream, const RelationSamples& samples, const TransrArrays<T>& a, RankingSums* sums) {
  constexpr std::size_t kMostBytes = 96 << 10;  // two blocks per multiprocessor from compute capability 8.0 on
  const auto size = [&](int tile, bool matrix) { return Layout::size_bytes<T>(tile, matrix, a.d, a.k); };
  Layout layout = {.tile = kTile, .matrix = size(1, true) <= kMostBytes};
  while (layout.tile > 1 && size(layout.tile, layout.matrix) > kMostBytes) layout.tile /= 2;
  gpu::launch(stream,
              {.grid = samples.chunks.size(), .block = kThreads, .shared_bytes = size(layout.tile, layout.matrix)},
              transr_kernel<T>, samples, a, sums, layout);
}

}  // namespace lockstep::ops::cuda

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

#endif
