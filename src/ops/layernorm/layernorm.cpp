#include "lockstep/ops/layernorm.hpp"

#include <algorithm>

#include "layernorm_kernels.hpp"
#include "lockstep/ops/gemm.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/gemm/gemm_kernels.hpp"

namespace lockstep::ops {

namespace {
void check(const char* what, const Tensor& x, const Tensor& y, const Tensor& vector) {
  require(y.shape() == x.shape(), what, ": x is ", x.shape(), ", so the other rows must be too, not ", y.shape());
  require(vector.shape() == Shape{x.columns()}, what, ": x is ", x.shape(), ", so gamma and beta must be (",
          x.columns(), "), not ", vector.shape());
}
}  // namespace

void layernorm_forward(Stream& stream, const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                       const Tensor& gamma, const Tensor& beta, double eps) {
  check("layernorm", x, y, gamma);
  check("layernorm", x, y, beta);
  require(!mean == !rstd && (!mean || (mean.size() == x.rows() && rstd.size() == x.rows())), "layernorm: x is ",
          x.shape(), ", so mean and rstd must have ", x.rows(), " elements each");
  on_gpu(x, [&]<class T>() {
    using R = real_t<T>;
    cuda::layernorm_forward<T>(stream, x.rows(), x.columns(), y, mean, rstd, x, gamma, beta, static_cast<R>(eps));
  });
  on_cpu(x, [&]<class T>() {
    cpu::active_layernorm_kernels<T>().forward(x.rows(), x.columns(), y, mean, rstd, x, gamma, beta,
                                               static_cast<T>(eps));
  });
}

void layernorm_backward(Stream& stream, Target dx, Target dgamma, Target dbeta, const Tensor& dy, const Tensor& x,
                        const Tensor& mean, const Tensor& rstd, const Tensor& gamma, const Tensor& derivative,
                        Target sums) {
  check("layernorm backward", x, dy, gamma);
  require(!dx || dx.tensor.shape() == x.shape(), "layernorm backward: x is ", x.shape(), ", so dx must be too, not ",
          dx.tensor.shape());
  require(!dgamma == !dbeta, "layernorm backward: dgamma and dbeta must be both present or both empty");
  require(x.rows() == 0 || dx || (!derivative && !sums), "layernorm backward: derivative and sums require dx");
  require((!derivative || derivative.shape() == x.shape()) && (!sums || sums.tensor.shape() == gamma.shape()),
          "layernorm backward: x is ", x.shape(), ", so derivative must be too, not ", derivative.shape(),
          ", and sums must be ", gamma.shape(), ", not ", sums.tensor.shape());
  const std::int64_t rows = x.rows(), columns = x.columns();
  on_gpu(x, [&]<class T>() {
    cuda::layernorm_backward<T>(stream, rows, columns, dx.tensor, dx.accumulate, dgamma.tensor, dgamma.accumulate,
                                dbeta.tensor, dbeta.accumulate, dy, x, mean, rstd, gamma, derivative, sums.tensor,
                                sums.accumulate);
  });
  on_cpu(x, [&]<class T>() {
    T* partial = dgamma ? cpu::thread_scratch<T>(cpu::Scratch::partial, 2 * columns) : nullptr;
    for (const Target* t : {&dgamma, &dbeta})
      if (*t && !t->accumulate) std::fill_n(t->tensor.template data<T>(), columns, T{});
    for (std::int64_t first = 0; first < rows; first += kTnRows) {
      if (partial) std::fill_n(partial, 2 * columns, T{});
      const std::int64_t at = first * columns;
      cpu::active_layernorm_kernels<T>().backward(
          std::min(kTnRows, rows - first), columns, dx ? dx.tensor.data<T>() + at : nullptr, dx.accumulate, partial,
          dy.data<T>() + at, x.data<T>() + at, mean.data<T>() + first, rstd.data<T>() + first, gamma);
      for (std::int64_t c = 0; partial && c < columns; ++c) {
        dgamma.tensor.data<T>()[c] += partial[c];
        dbeta.tensor.data<T>()[c] += partial[columns + c];
      }
    }
    T *const to = dx.tensor.data<T>(), *const slope = derivative.data<T>();
    cpu::scale_and_sum<T>(rows, columns, slope ? slope : to, slope ? to : nullptr, sums.tensor, sums.accumulate);
  });
}

}  // namespace lockstep::ops
