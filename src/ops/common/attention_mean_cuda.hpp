#pragma once
#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "lockstep/device/cuda_scratch.hpp"
#include "ops/attention/attention_kernels.hpp"

/// The row sums that the gradient of a softmax needs: sum_j p_ij dp_ij = sum_c dy_ic y_ic.
namespace lockstep::ops::cuda {

inline constexpr int kMeanWarps = 8;

/// One warp per row of a head. Memory bound: reads y and dy once.
template <class T>
__global__ void __launch_bounds__(gpu::kWarp* kMeanWarps)
    attention_mean_kernel(Attention<T> a, std::int64_t rows, bool by_row, real_t<T>* __restrict__ mean) {
  const std::int64_t n = std::int64_t{blockIdx.x} * kMeanWarps + threadIdx.y;
  if (n >= rows * a.heads) return;
  const std::int64_t head = by_row ? n % a.heads : n / a.time % a.heads;
  const std::int64_t row = by_row ? n / a.heads : n / (a.time * a.heads) * a.time + n % a.time;
  const std::int64_t at = (row * a.heads + head) * a.width;
  real_t<T> sum = 0;
  for (std::int64_t c = threadIdx.x; c < a.width; c += gpu::kWarp)
    sum += gpu::load(a.dy + at + c) * gpu::load(a.y + at + c);
  sum = gpu::warp_reduce(sum);
  if (threadIdx.x == 0) mean[n] = sum;
}

/// Computes the means of all rows of all sequences in scratch memory, laid out as lse: (rows, heads) if by_row, else
/// (batch, heads, time).
template <class T>
const real_t<T>* attention_mean(const Stream& stream, const Attention<T>& a, std::int64_t rows, bool by_row) {
  using R = real_t<T>;
  R* mean = reinterpret_cast<R*>(gpu::scratch(stream, static_cast<std::size_t>(rows * a.heads) * sizeof(R)));
  gpu::launch(stream,
              {.grid = static_cast<unsigned>(gpu::ceil_div<std::int64_t>(rows * a.heads, kMeanWarps)),
               .block = dim3(gpu::kWarp, kMeanWarps)},
              attention_mean_kernel<T>, a, rows, by_row, mean);
  return mean;
}

}  // namespace lockstep::ops::cuda
