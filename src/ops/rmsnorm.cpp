#include "lockstep/ops/rmsnorm.hpp"

#include "rmsnorm_kernels.hpp"

namespace lockstep::ops {

void rmsnorm_forward(Stream&, const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& branch, double eps) {
  require(y.shape() == x.shape() && (!branch || branch.shape() == x.shape()), "rmsnorm: x is ", x.shape(),
          ", so y and the branch must be too, not ", y.shape(), " and ", branch.shape());
  require(!rstd || rstd.size() == x.rows(), "rmsnorm: x is ", x.shape(), ", so rstd must have ", x.rows(),
          " elements, not ", rstd.size());
  visit_float(x.dtype(), [&]<class T>() {
    cpu::active_rmsnorm_kernels<T>().forward(x.rows(), x.columns(), y.data<T>(), rstd ? rstd.data<T>() : nullptr,
                                             x.data<T>(), branch ? branch.data<T>() : nullptr, static_cast<T>(eps));
  });
}

void rmsnorm_backward(Stream&, Target dx, Target dbranch, const Tensor& dy, const Tensor& y, const Tensor& rstd) {
  require(dy.shape() == y.shape() && rstd.size() == y.rows() && (!dx || dx.tensor.shape() == y.shape()) &&
              (!dbranch || dbranch.tensor.shape() == y.shape()),
          "rmsnorm backward: y is ", y.shape(), ", dy ", dy.shape(), ", dx ", dx.tensor.shape(), ", dbranch ",
          dbranch.tensor.shape(), ", rstd ", rstd.shape(), "; these do not fit together");
  if (!dx && !dbranch) return;
  visit_float(y.dtype(), [&]<class T>() {
    cpu::active_rmsnorm_kernels<T>().backward(y.rows(), y.columns(), dx ? dx.tensor.data<T>() : nullptr, dx.accumulate,
                                              dbranch ? dbranch.tensor.data<T>() : nullptr, dbranch.accumulate,
                                              dy.data<T>(), y.data<T>(), rstd.data<T>());
  });
}

}  // namespace lockstep::ops
