#include "lockstep/ops/conv1d.hpp"

#include <algorithm>

#include "conv1d_kernels.hpp"
#include "lockstep/ops/gemm.hpp"
#include "ops/activation/activation_kernels.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/gemm/gemm_kernels.hpp"

namespace lockstep::ops {

namespace {
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
  on_gpu(x, [&]<class T>() { cuda::conv1d_forward<T>(stream, s, y, derivative, x, weight, bias, activation); });
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
    cuda::conv1d_backward<T>(stream, s, dx.tensor, dx.accumulate, dweight.tensor, dweight.accumulate, dbias.tensor,
                             dbias.accumulate, dy, derivative, x, weight);
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
