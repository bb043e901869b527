#include "lockstep/ops/rmsnorm.hpp"

#include "ops/common/on_gpu.hpp"
#include "rmsnorm_kernels.hpp"

namespace lockstep::ops {

namespace {
template <class T>
RowSum<T> row_sum(const NormSum& sum) {
  return {sum.to, sum.a, sum.b};
}
}  // namespace

void rmsnorm_forward(Stream& stream, const Tensor& y, const Tensor& rstd, const Tensor& x, double eps,
                     const NormSum& sum) {
  require(y.shape() == x.shape(), "rmsnorm: x is ", x.shape(), ", so y must be too, not ", y.shape());
  require(!rstd || rstd.size() == x.rows(), "rmsnorm: x is ", x.shape(), ", so rstd must have ", x.rows(),
          " elements, not ", rstd.size());
  require(
      !sum.to || (sum.to.shape() == x.shape() && sum.a.shape() == x.shape() && (!sum.b || sum.b.shape() == x.shape())),
      "rmsnorm: x is ", x.shape(), ", so a sum and what it adds must be too, not ", sum.to.shape(), ", ", sum.a.shape(),
      " and ", sum.b.shape());
  on_gpu(x, [&]<class T>() {
    cuda::rmsnorm_forward<T>(stream, x.rows(), x.columns(), y, rstd, x, static_cast<real_t<T>>(eps), row_sum<T>(sum));
  });
  on_cpu(x, [&]<class T>() {
    cpu::active_rmsnorm_kernels<T>().forward(x.rows(), x.columns(), y, rstd, x, static_cast<T>(eps), row_sum<T>(sum));
  });
}

void rmsnorm_backward(Stream& stream, Target dx, const Tensor& dy, const Tensor& y, const Tensor& rstd) {
  if (!dx) return;
  require(dy.shape() == y.shape() && rstd.size() == y.rows() && dx.tensor.shape() == y.shape(),
          "rmsnorm backward: y is ", y.shape(), ", dy ", dy.shape(), ", dx ", dx.tensor.shape(), ", rstd ",
          rstd.shape(), "; these do not fit together");
  on_gpu(y, [&]<class T>() {
    cuda::rmsnorm_backward<T>(stream, y.rows(), y.columns(), dx.tensor, dx.accumulate, dy, y, rstd);
  });
  on_cpu(y, [&]<class T>() {
    cpu::active_rmsnorm_kernels<T>().backward(y.rows(), y.columns(), dx.tensor, dx.accumulate, dy, y, rstd);
  });
}

}  // namespace lockstep::ops
