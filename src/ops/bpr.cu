#include "lockstep/ops/bpr.hpp"

#include "lockstep/ops/dispatch.hpp"

namespace lockstep::ops::cpu {

/// Sums over the columns of one sample's rows, in f64.
struct PairSums {
  double margin;   ///< r_u . r_j - r_u . r_i
  double squares;  ///< |r_u|^2 + |r_i|^2 + |r_j|^2
};

/// Kernels for rows of n columns.
template <class T>
struct BprKernels {
  PairSums (*sums)(std::int64_t n, const T* user, const T* liked, const T* other);
  void (*scale)(std::int64_t n, T* to, const T* row, T factor);                     ///< to = factor row
  void (*add_difference)(std::int64_t n, T* to, const T* a, const T* b, T factor);  ///< to += factor (a - b)
};

LOCKSTEP_KERNELS(BprKernels, bpr_kernels)

}  // namespace lockstep::ops::cpu

#ifdef LOCKSTEP_ISA
#include "ops/common/f64_sums.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

template <class T>
PairSums sums(std::int64_t n, const T* user, const T* liked, const T* other) {
  Partials margin{}, squares{};
  std::int64_t c = 0;
  for (; c + kPartials <= n; c += kPartials) {
    const Partials u = partials(user + c), i = partials(liked + c), j = partials(other + c);
    margin += u * (j - i);
    squares += u * u + i * i + j * j;
  }
  for (; c < n; ++c) {
    const auto u = static_cast<double>(user[c]), i = static_cast<double>(liked[c]), j = static_cast<double>(other[c]);
    margin[0] += u * (j - i);
    squares[0] += u * u + i * i + j * j;
  }
  return {total(margin), total(squares)};
}

template <class T>
void scale(std::int64_t n, T* __restrict__ to, const T* __restrict__ row, T factor) {
  for (std::int64_t c = 0; c < n; ++c) to[c] = factor * row[c];
}
template <class T>
void add_difference(std::int64_t n, T* __restrict__ to, const T* __restrict__ a, const T* __restrict__ b, T factor) {
  for (std::int64_t c = 0; c < n; ++c) to[c] += factor * (a[c] - b[c]);
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(BprKernels, bpr_kernels, sums<T>, scale<T>, add_difference<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA

#else
#include "lockstep/device/cuda_reduce.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/common/row_kernels.hpp"

namespace lockstep::ops {
namespace {

using gpu::kWarp;

template <class T>
struct RankedRows {
  const T* x;  ///< (U, width)
  std::int64_t width;
  double l2;
};

/// One warp per pair: a lane takes every 32nd column. Sums in f64, as on the CPU.
template <class T>
__global__ void __launch_bounds__(kWarp* gpu::kRowWarps, 4)
    bpr_pairs_kernel(gpu::Earlier earlier, RankedPairs batch, RankedRows<T> rows, T* __restrict__ slope,
                     RankingSums* __restrict__ terms) {
  earlier.wait();
  const std::int64_t b = gpu::warp_row();
  if (b >= batch.count()) return;
  const T *u = rows.x + batch.user.data()[b] * rows.width, *i = rows.x + batch.liked.data()[b] * rows.width,
          *j = rows.x + batch.other.data()[b] * rows.width;
  double x = 0, squares = 0;
  for (std::int64_t c = threadIdx.x; c < rows.width; c += kWarp) {
    const double a = static_cast<double>(u[c]), p = static_cast<double>(i[c]), q = static_cast<double>(j[c]);
    x += a * (q - p);
    squares += a * a + p * p + q * q;
  }
  x = gpu::warp_reduce(x);
  squares = gpu::warp_reduce(squares);
  if (threadIdx.x != 0) return;
  terms[b] = {softplus(x), squares / 2};
  slope[b] = static_cast<T>(-1 / (1 + exp(-x)));
}

/// One block, because a batch's terms are only a few KiB. Each thread adds every 256th term, then a tree adds the
/// threads' sums.
[[maybe_unused]] __global__ void __launch_bounds__(256)
    sum_rankings_kernel(gpu::Earlier earlier, RankingSums* sums, RankingSums* copy,
                        std::span<const RankingSums> terms) {
  earlier.wait();
  double loss = 0, half_square = 0;
  for (std::size_t b = threadIdx.x; b < terms.size(); b += blockDim.x) {
    const RankingSums term = terms.data()[b];
    loss += term.loss;
    half_square += term.half_square;
  }
  loss = gpu::block_reduce(loss);
  half_square = gpu::block_reduce(half_square);
  if (threadIdx.x != 0) return;
  *sums = {loss, half_square};
  if (copy != nullptr) *copy = {loss, half_square};
}

/// One warp per distinct row sums the uses of its row in the order of the batch, without atomics. Rows of other samples
/// come from the second-level cache.
template <class T>
__global__ void __launch_bounds__(kWarp* gpu::kRowWarps, 4)
    bpr_rows_kernel(gpu::Earlier earlier, RankedPairs batch, RankedRows<T> rows, T* __restrict__ drows,
                    const T* __restrict__ slope, T scale) {
  earlier.wait();
  const std::int64_t n = gpu::warp_row();
  if (n + 1 >= static_cast<std::int64_t>(batch.use_ptr.size())) return;
  const std::int64_t begin = batch.use_ptr.data()[n], end = batch.use_ptr.data()[n + 1];
  if (begin == end) return;  // padding
  const T decay = static_cast<T>(end - begin) * (static_cast<T>(rows.l2) * scale);
  for (std::int64_t c = threadIdx.x; c < rows.width; c += kWarp) {
    T sum = decay * rows.x[n * rows.width + c];
    for (std::int64_t k = begin; k < end; ++k) {
      const std::int32_t use = batch.use.data()[k], b = use / 3, role = use % 3;
      const T g = slope[b] * scale;
      if (role == 0) {
        sum += g * (rows.x[batch.liked.data()[b] * rows.width + c] - rows.x[batch.other.data()[b] * rows.width + c]);
      } else {
        const T user = g * rows.x[batch.user.data()[b] * rows.width + c];
        sum += role == 1 ? user : -user;
      }
    }
    drows[n * rows.width + c] = sum;
  }
}

}  // namespace

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
    const RankedRows<T> ranked = {rows, width, l2};
    gpu::launch(stream, gpu::warp_per_row(count), bpr_pairs_kernel<T>, batch, ranked, slope.data<T>(), terms.data());
    if (drows)
      gpu::launch(stream, gpu::warp_per_row(rows.rows()), bpr_rows_kernel<T>, batch, ranked, drows.data<T>(),
                  slope.data<T>(), static_cast<T>(1 / static_cast<double>(count)));
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
    const auto add = cpu::active_row_kernels<T>().add;
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
            add(width, to, user, g);
            break;
          default:
            add(width, to, user, -g);
        }
      }
    }
  });
}

void sum_rankings(Stream& stream, RankingSums& sums, RankingSums* copy, std::span<const RankingSums> terms) {
  const bool gpu = on_gpu(stream, [&](const auto& of_gpu) {
    gpu::launch(of_gpu, {.block = 256}, sum_rankings_kernel, &sums, copy, terms);
  });
  if (gpu) return;
  sums = {};
  for (const RankingSums& t : terms) {
    sums.loss += t.loss;
    sums.half_square += t.half_square;
  }
  if (copy != nullptr) *copy = sums;
}

}  // namespace lockstep::ops
#endif
