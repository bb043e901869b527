#include "bpr_kernels.hpp"
#include "lockstep/base/instantiate.hpp"
#include "lockstep/device/cuda_reduce.hpp"

namespace lockstep::ops::cuda {
namespace {

using gpu::kWarp;

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
__global__ void __launch_bounds__(256) sum_rankings_kernel(gpu::Earlier earlier, RankingSums* sums, RankingSums* copy,
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

template <class T>
void bpr(const Stream& stream, const RankedPairs& batch, const RankedRows<T>& rows, T* slope, T* drows,
         RankingSums* terms) {
  const std::int64_t count = batch.count(), distinct = static_cast<std::int64_t>(batch.use_ptr.size()) - 1;
  gpu::launch(stream, gpu::warp_per_row(count), bpr_pairs_kernel<T>, batch, rows, slope, terms);
  if (drows != nullptr)
    gpu::launch(stream, gpu::warp_per_row(distinct), bpr_rows_kernel<T>, batch, rows, drows, slope,
                static_cast<T>(1 / static_cast<double>(count)));
}

void sum_rankings(const Stream& stream, RankingSums* sums, RankingSums* copy, std::span<const RankingSums> terms) {
  gpu::launch(stream, {.block = 256}, sum_rankings_kernel, sums, copy, terms);
}

LOCKSTEP_EACH_FLOAT(bpr)

}  // namespace lockstep::ops::cuda
