#include <algorithm>

#include "conv1d_kernels.hpp"
#include "lockstep/device/cuda_reduce.hpp"
#include "ops/activation/activation_kernels.hpp"
#include "ops/common/activation_cuda.hpp"
#include "ops/common/column_sums_cuda.hpp"
#include "ops/common/map_cuda.hpp"

namespace lockstep::ops::cuda {
namespace {

constexpr int kThreads = 256;

/// One thread per result and its derivative. Adjacent threads read adjacent inputs, from the first-level cache.
/// Memory bound: writes y (and the derivative), C times as large as x. bias and derivative may be null.
template <class T, class Op>
__global__ void __launch_bounds__(kThreads)
    conv1d_forward_kernel(gpu::Earlier earlier, ConvShape s, T* __restrict__ y, T* __restrict__ derivative,
                          const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias) {
  earlier.wait();
  using R = real_t<T>;
  // mutant-equivalent: an element computed twice gets the same value
  const std::int64_t count = s.rows * s.channels * s.length, stride = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t at = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; at < count; at += stride) {
    const std::int64_t i = gpu::remainder(at, s.length), rest = gpu::quotient(at, s.length);
    const std::int64_t c = gpu::remainder(rest, s.channels), m = gpu::quotient(rest, s.channels);
    R sum = bias != nullptr ? gpu::load(bias + c) : R{0};
    for (std::int64_t j = 0; j < s.kernel; ++j) {
      const std::int64_t from = i + j - s.kernel / 2;
      if (from >= 0 && from < s.length)
        sum += gpu::load(weight + c * s.kernel + j) * gpu::load(x + m * s.length + from);
    }
    R value, slope;
    Op::apply(sum, value, slope);
    gpu::store(y + at, value);
    if (derivative != nullptr) gpu::store(derivative + at, slope);
  }
}

/// One thread per input sums over all channels and taps that use it, in a fixed order.
template <class T>
__global__ void __launch_bounds__(kThreads)
    conv1d_input_kernel(gpu::Earlier earlier, ConvShape s, T* dx, const T* __restrict__ da,
                        const T* __restrict__ weight, bool accumulate) {
  earlier.wait();
  const std::int64_t count = s.rows * s.length, stride = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t at = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; at < count; at += stride) {
    const std::int64_t i = gpu::remainder(at, s.length), m = gpu::quotient(at, s.length);
    real_t<T> sum = 0;
    for (std::int64_t c = 0; c < s.channels; ++c)
      for (std::int64_t j = 0; j < s.kernel; ++j) {
        const std::int64_t from = i - j + s.kernel / 2;
        if (from >= 0 && from < s.length)
          sum += gpu::load(weight + c * s.kernel + j) * gpu::load(da + (m * s.channels + c) * s.length + from);
      }
    gpu::store(dx + at, sum, accumulate);
  }
}

/// One block per tap of a channel (the last block: its bias) and per chunk of rows. partials (chunks, C (K + 1)): the
/// taps of all channels, then the biases. da is read K + 1 times, all but the first from the second-level cache.
template <class T>
__global__ void __launch_bounds__(kThreads)
    conv1d_params_kernel(gpu::Earlier earlier, ConvShape s, real_t<T>* __restrict__ partials, const T* __restrict__ da,
                         const T* __restrict__ x) {
  earlier.wait();
  using R = real_t<T>;
  // mutant-equivalent: another thread or block does the same work
  const std::int64_t c = blockIdx.x / (s.kernel + 1), j = blockIdx.x % (s.kernel + 1);
  const bool bias = j == s.kernel;
  const std::int64_t shift = bias ? 0 : j - s.kernel / 2;
  const std::int64_t first = s.rows * blockIdx.y / gridDim.y, last = s.rows * (blockIdx.y + 1) / gridDim.y;
  R sum = 0;
  for (std::int64_t at = first * s.length + threadIdx.x; at < last * s.length; at += kThreads) {
    const std::int64_t i = gpu::remainder(at, s.length), m = gpu::quotient(at, s.length);
    if (i + shift < 0 || i + shift >= s.length) continue;
    const R d = gpu::load(da + (m * s.channels + c) * s.length + i);
    sum += bias ? d : d * gpu::load(x + at + shift);
  }
  sum = gpu::block_reduce(sum);
  const std::int64_t taps = s.channels * s.kernel, tap = bias ? taps + c : c * s.kernel + j;
  if (threadIdx.x == 0) partials[blockIdx.y * (taps + s.channels) + tap] = sum;
}

}  // namespace

template <class T>
void conv1d_forward(const Stream& stream, const ConvShape& s, T* y, T* derivative, const T* x, const T* weight,
                    const T* bias, Activation activation) {
  const std::int64_t count = s.rows * s.channels * s.length;
  gpu::visit_activation(activation, [&]<class Op>() {
    gpu::launch(stream, gpu::grid_for(count, kThreads), conv1d_forward_kernel<T, Op>, s, y, derivative, x, weight,
                bias);
  });
}

template <class T>
void conv1d_backward(const Stream& stream, const ConvShape& s, T* dx, bool add_dx, real_t<T>* dweight, bool add_dweight,
                     real_t<T>* dbias, bool add_dbias, T* dy, const T* derivative, const T* x, const T* weight) {
  using R = real_t<T>;
  const std::int64_t count = s.rows * s.channels * s.length, taps = s.channels * s.kernel;
  if (derivative != nullptr) multiply<T>(stream, count, dy, dy, derivative, false);
  if (dx != nullptr)
    gpu::launch(stream, gpu::grid_for(s.rows * s.length, kThreads), conv1d_input_kernel<T>, s, dx, dy, weight, add_dx);
  if (dweight == nullptr && dbias == nullptr) return;
  const std::int64_t columns = taps + s.channels;
  const std::int64_t chunks = std::clamp<std::int64_t>(gpu::kManyBlocks / std::max<std::int64_t>(1, columns), 1,
                                                       std::max<std::int64_t>(1, s.rows * s.length / kThreads));
  R* partials = gpu::scratch<R>(stream, chunks * columns);
  gpu::launch(stream, {.grid = {columns, chunks}, .block = kThreads}, conv1d_params_kernel<T>, s, partials, dy, x);
  const auto put = [&](R* to, bool accumulate, std::int64_t first, std::int64_t n) {
    if (to != nullptr)
      gpu::add_partials(stream, chunks, n, gpu::ColumnSums<R, 1>{{to}, {accumulate}}, partials + first, columns);
  };
  put(dweight, add_dweight, 0, taps);
  put(dbias, add_dbias, taps, s.channels);
}

LOCKSTEP_EACH_STORAGE(conv1d_forward, conv1d_backward)

}  // namespace lockstep::ops::cuda
