#include "lockstep/ops/linear.hpp"

#include <algorithm>

#include "linear_kernels.hpp"
#include "lockstep/ops/dropout.hpp"
#include "ops/activation/activation_kernels.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/gemm/gemm_kernels.hpp"

namespace lockstep::ops {

namespace {
struct LinearShape {
  std::int64_t m, n, k;
};
LinearShape shape_of(const char* what, const Tensor& x, const Tensor& weight) {
  require(weight.shape().rank() == 2 && weight.columns() == x.columns(), what, ": x is ", x.shape(),
          ", so weight must be (N, ", x.columns(), "), not ", weight.shape());
  return {x.rows(), weight.shape()[0], weight.shape()[1]};
}
void check_output(const char* what, const char* which, const Tensor& t, const LinearShape& s) {
  require(!t || (t.rows() == s.m && t.columns() == s.n), what, ": ", which, " must have ", s.m, " rows of ", s.n,
          ", not the shape ", t.shape());
}
}  // namespace

void linear_forward(Stream& stream, const Tensor& y, const Tensor& derivative, const Tensor& x, const Tensor& weight,
                    const Tensor& bias, Activation activation, const Dropout& dropout, const SampleRows& rows,
                    const Tensor& residual) {
  const LinearShape s = shape_of("linear", x, weight);
  check_output("linear", "y", y, s);
  check_output("linear", "derivative", derivative, s);
  check_output("linear", "residual", residual, s);
  require(!bias || bias.shape() == Shape{s.n}, "linear: weight is ", weight.shape(), ", so bias must be (", s.n,
          "), not ", bias.shape());
  require(!dropout || (dropout.rate > 0 && dropout.rate < 1 && y.shape()[0] == rows.rows()), "linear: dropout of ",
          dropout.rate, " in ", rows.rows(), " rows, but y is ", y.shape());
  on_gpu(x, [&]<class T>() {
    cuda::linear_forward<T>(stream, {s.m, s.n, s.k}, y, derivative, x, weight, bias, residual, activation, dropout,
                            rows);
  });
  on_cpu(x, [&]<class T>() {
    cpu::Epilogue<T> epilogue;
    if (bias) epilogue.bias = bias.data<T>();
    if (derivative) epilogue.derivative = derivative.data<T>();
    epilogue.activate = cpu::active_activation_kernel<T>(activation);
    if (residual && !dropout) epilogue.residual = residual.data<T>();
    if (derivative && !epilogue.activate) std::fill_n(derivative.data<T>(), derivative.size(), T{1});
    cpu::product<T>(s.m, s.n, s.k, y, x, weight, true, false, epilogue, cpu::Operand::weight);
    if (dropout) ops::dropout_both(stream, y, derivative, residual, dropout, rows);
  });
}

void linear_backward(Stream& stream, Target dx, Target dweight, Target dbias, const Tensor& dy,
                     const Tensor& derivative, const Tensor& x, const Tensor& weight) {
  const LinearShape s = shape_of("linear backward", x, weight);
  check_output("linear backward", "dy", dy, s);
  check_output("linear backward", "derivative", derivative, s);
  require(!dx || dx.tensor.shape() == x.shape(), "linear backward: x is ", x.shape(), ", so dx must be too, not ",
          dx.tensor.shape());
  require(!dweight || dweight.tensor.shape() == weight.shape(), "linear backward: weight is ", weight.shape(),
          ", so dweight must be too, not ", dweight.tensor.shape());
  require(!dbias || dbias.tensor.shape() == Shape{s.n}, "linear backward: weight is ", weight.shape(),
          ", so dbias must be (", s.n, "), not ", dbias.tensor.shape());
  on_gpu(x, [&]<class T>() {
    const auto gradient = [](const Target& to) {
      return cuda::Gradient<T>{to ? to.tensor.data<real_t<T>>() : nullptr, to.accumulate};
    };
    cuda::linear_gradients<T>(stream, {s.m, s.n, s.k}, dy.data<T>(), derivative, x, gradient(dweight), gradient(dbias));
    if (dx) cuda::product<T, T>(stream, cuda::Product::nn, s.m, s.k, s.n, dx.tensor, dy, weight, dx.accumulate);
  });
  on_cpu(x, [&]<class T>() {
    T* da = dy.data<T>();
    cpu::scale_and_sum<T>(s.m, s.n, da, derivative, dbias.tensor, dbias.accumulate);
    if (dx) cpu::product<T>(s.m, s.k, s.n, dx.tensor, da, weight, false, dx.accumulate, {}, cpu::Operand::weight);
    if (dweight) cpu::product_tn<T>(s.n, s.k, s.m, dweight.tensor, da, x, dweight.accumulate);
  });
}

}  // namespace lockstep::ops
