#include "lockstep/ops/conv1d.hpp"

#include <algorithm>

#include "lockstep/device/cuda_reduce.hpp"
#include "lockstep/ops/gemm.hpp"
#include "ops/common/activation_cuda.hpp"
#include "ops/common/column_sums_cuda.hpp"
#include "ops/common/map.hpp"
#include "ops/gemm/gemm_kernels.hpp"

namespace lockstep::ops {

struct ConvShape {
  std::int64_t rows, channels, kernel, length;
};

namespace cpu {

/// Kernels of one-channel convolutions: y, da (rows, channels, length); x, dx (rows, length); weight, dweight
/// (channels, kernel); bias, dbias (channels).
template <class T>
struct Conv1dKernels {
  /// bias may be null.
  void (*forward)(const ConvShape& s, T* y, const T* x, const T* weight, const T* bias);
  /// dx is stored, or added if `accumulate`: the transposed convolution of da.
  void (*backward_input)(const ConvShape& s, T* dx, const T* da, const T* weight, bool accumulate);
  /// The gradients are added to dweight and dbias; each may be null.
  void (*backward_params)(const ConvShape& s, T* dweight, T* dbias, const T* da, const T* x);
};

LOCKSTEP_KERNELS(Conv1dKernels, conv1d_kernels)

}  // namespace cpu

}  // namespace lockstep::ops

#ifdef LOCKSTEP_ISA

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

/// Positions [begin, end) of a row whose neighbour at distance `shift` is also in the row.
struct Overlap {
  std::int64_t begin, end;
  Overlap(std::int64_t length, std::int64_t shift)
      : begin(shift < 0 ? -shift : 0), end(shift > 0 ? length - shift : length) {}
};

template <class T>
void forward(const ConvShape& s, T* __restrict__ y, const T* __restrict__ x, const T* __restrict__ weight,
             const T* __restrict__ bias) {
  for (std::int64_t m = 0; m < s.rows; ++m, x += s.length)
    for (std::int64_t c = 0; c < s.channels; ++c, y += s.length) {
      const T start = bias ? bias[c] : T{};
      for (std::int64_t i = 0; i < s.length; ++i) y[i] = start;
      for (std::int64_t j = 0; j < s.kernel; ++j) {
        const T w = weight[c * s.kernel + j];
        const std::int64_t shift = j - s.kernel / 2;
        const Overlap at(s.length, shift);
        for (std::int64_t i = at.begin; i < at.end; ++i) y[i] += w * x[i + shift];
      }
    }
}

template <class T>
void backward_input(const ConvShape& s, T* __restrict__ dx, const T* __restrict__ da, const T* __restrict__ weight,
                    bool accumulate) {
  for (std::int64_t m = 0; m < s.rows; ++m, dx += s.length) {
    if (!accumulate)
      for (std::int64_t i = 0; i < s.length; ++i) dx[i] = T{};
    for (std::int64_t c = 0; c < s.channels; ++c, da += s.length)
      for (std::int64_t j = 0; j < s.kernel; ++j) {
        const T w = weight[c * s.kernel + j];
        const std::int64_t shift = j - s.kernel / 2;
        const Overlap at(s.length, shift);
        for (std::int64_t i = at.begin; i < at.end; ++i) dx[i + shift] += w * da[i];
      }
  }
}

template <class T>
void backward_params(const ConvShape& s, T* __restrict__ dweight, T* __restrict__ dbias, const T* __restrict__ da,
                     const T* __restrict__ x) {
  for (std::int64_t m = 0; m < s.rows; ++m, x += s.length)
    for (std::int64_t c = 0; c < s.channels; ++c, da += s.length) {
      for (std::int64_t j = 0; dweight && j < s.kernel; ++j) {
        const std::int64_t shift = j - s.kernel / 2;
        const Overlap at(s.length, shift);
        T sum{};
        for (std::int64_t i = at.begin; i < at.end; ++i) sum += da[i] * x[i + shift];
        dweight[c * s.kernel + j] += sum;
      }
      if (dbias) {
        T sum{};
        for (std::int64_t i = 0; i < s.length; ++i) sum += da[i];
        dbias[c] += sum;
      }
    }
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(Conv1dKernels, conv1d_kernels, forward<T>, backward_input<T>, backward_params<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA

#else

namespace lockstep::ops {

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

template <class T>
void params_on_gpu(const Stream& stream, const ConvShape& s, const Target& dweight, const Target& dbias, const T* da,
                   const T* x) {
  using R = real_t<T>;
  const std::int64_t taps = s.channels * s.kernel;
  const std::int64_t columns = taps + s.channels;
  const std::int64_t chunks = std::clamp<std::int64_t>(gpu::kManyBlocks / std::max<std::int64_t>(1, columns), 1,
                                                       std::max<std::int64_t>(1, s.rows * s.length / kThreads));
  R* partials = gpu::scratch<R>(stream, chunks * columns);
  gpu::launch(stream, {.grid = {columns, chunks}, .block = kThreads}, conv1d_params_kernel<T>, s, partials, da, x);
  const auto put = [&](const Target& to, std::int64_t first, std::int64_t n) {
    if (to)
      gpu::add_partials(stream, chunks, n, gpu::ColumnSums<R, 1>{{to.tensor}, {to.accumulate}}, partials + first,
                        columns);
  };
  put(dweight, 0, taps);
  put(dbias, taps, s.channels);
}

ConvShape shape_of(const char* what, const Tensor& y, const Tensor& derivative, const Tensor& x, const Tensor& weight) {
  const Shape& w = weight.shape();
  require(w.rank() == 3 && w[1] == 1 && w[2] % 2 == 1, what, ": weight must be (C, 1, K) with an odd K, not ", w);
  const ConvShape s = {x.rows(), w[0], w[2], x.columns()};
  for (const Tensor* t : {&y, &derivative})
    require(!*t || (t->rows() == s.rows && t->columns() == s.channels * s.length), what, ": x is ", x.shape(),
            " and weight ", w, ", so y, its gradient and derivative must have ", s.rows, " rows of ",
            s.channels * s.length, ", not the shape ", t->shape());
  return s;
}
}  // namespace

void conv1d_forward(Stream& stream, const Tensor& y, const Tensor& derivative, const Tensor& x, const Tensor& weight,
                    const Tensor& bias, Activation activation) {
  const ConvShape s = shape_of("conv1d", y, derivative, x, weight);
  require(!bias || bias.shape() == Shape{s.channels}, "conv1d: weight is ", weight.shape(), ", so bias must be (",
          s.channels, "), not ", bias.shape());
  on_gpu(x, [&]<class T>() {
    gpu::visit_activation(activation, [&]<class Op>() {
      gpu::launch(stream, gpu::grid_for(y.size(), kThreads), conv1d_forward_kernel<T, Op>, s, y.data<T>(),
                  derivative.data<T>(), x.data<T>(), weight.data<T>(), bias.data<T>());
    });
  });
  on_cpu(x, [&]<class T>() {
    cpu::active_conv1d_kernels<T>().forward(s, y, x, weight, bias);
    if (derivative || activation != Activation::none) activation_forward(stream, y, derivative, y, activation);
  });
}

void conv1d_backward(Stream& stream, Target dx, Target dweight, Target dbias, const Tensor& dy,
                     const Tensor& derivative, const Tensor& x, const Tensor& weight) {
  const ConvShape s = shape_of("conv1d backward", dy, derivative, x, weight);
  require(!dx || dx.tensor.shape() == x.shape(), "conv1d backward: x is ", x.shape(), ", so dx must be too, not ",
          dx.tensor.shape());
  require(!dweight || dweight.tensor.shape() == weight.shape(), "conv1d backward: weight is ", weight.shape(),
          ", so dweight must be too, not ", dweight.tensor.shape());
  require(!dbias || dbias.tensor.shape() == Shape{s.channels}, "conv1d backward: weight is ", weight.shape(),
          ", so dbias must be (", s.channels, "), not ", dbias.tensor.shape());
  on_gpu(x, [&]<class T>() {
    if (derivative) activation_backward(stream, {dy}, dy, derivative);
    if (dx)
      gpu::launch(stream, gpu::grid_for(s.rows * s.length, kThreads), conv1d_input_kernel<T>, s, dx.tensor.data<T>(),
                  dy.data<T>(), weight.data<T>(), dx.accumulate);
    if (dweight || dbias) params_on_gpu<T>(stream, s, dweight, dbias, dy, x);
  });
  on_cpu(x, [&]<class T>() {
    T* da = dy.data<T>();
    const auto& kernels = cpu::active_conv1d_kernels<T>();
    cpu::scale_and_sum<T>(s.rows, s.channels * s.length, da, derivative, nullptr, false);
    if (dx) kernels.backward_input(s, dx.tensor, da, weight, dx.accumulate);
    if (dweight && !dweight.accumulate) fill_zero(stream, dweight.tensor);
    if (dbias && !dbias.accumulate) fill_zero(stream, dbias.tensor);
    if (!dweight && !dbias) return;
    // Each block of rows has its own sums: one long chain of f32 additions would lose digits.
    const std::int64_t weights = dweight ? weight.size() : 0, biases = dbias ? s.channels : 0;
    T* sums = cpu::thread_scratch<T>(cpu::Scratch::partial, weights + biases);
    for (std::int64_t first = 0; first < s.rows; first += kTnRows) {
      ConvShape block = s;
      block.rows = std::min(kTnRows, s.rows - first);
      std::fill_n(sums, weights + biases, T{});
      kernels.backward_params(block, dweight ? sums : nullptr, dbias ? sums + weights : nullptr,
                              da + first * s.channels * s.length, x.data<T>() + first * s.length);
      for (std::int64_t i = 0; i < weights; ++i) dweight.tensor.data<T>()[i] += sums[i];
      for (std::int64_t i = 0; i < biases; ++i) dbias.tensor.data<T>()[i] += sums[weights + i];
    }
  });
}

}  // namespace lockstep::ops

#endif
