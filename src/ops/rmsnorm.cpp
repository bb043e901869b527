#include "lockstep/ops/rmsnorm.hpp"

#include "lockstep/device/has_cuda.hpp"
#include "rmsnorm_kernels.hpp"

namespace lockstep::ops {

void rmsnorm_forward(Stream& stream, const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& branch,
                     double eps) {
  require(y.shape() == x.shape() && (!branch || branch.shape() == x.shape()), "rmsnorm: x is ", x.shape(),
          ", so y and the branch must be too, not ", y.shape(), " and ", branch.shape());
  require(!rstd || rstd.size() == x.rows(), "rmsnorm: x is ", x.shape(), ", so rstd must have ", x.rows(),
          " elements, not ", rstd.size());
  visit_float(x.dtype(), [&]<class T>() {
    T *to = y.data<T>(), *scale = rstd ? rstd.data<T>() : nullptr;
    const T *from = x.data<T>(), *other = branch ? branch.data<T>() : nullptr;
    if constexpr (kHasCuda) {
      if (x.device().is_cuda())
        return cuda::rmsnorm_forward(stream, x.rows(), x.columns(), to, scale, from, other, static_cast<T>(eps));
    }
    cpu::active_rmsnorm_kernels<T>().forward(x.rows(), x.columns(), to, scale, from, other, static_cast<T>(eps));
  });
}

void rmsnorm_backward(Stream& stream, Target dx, Target dbranch, const Tensor& dy, const Tensor& y,
                      const Tensor& rstd) {
  require(dy.shape() == y.shape() && rstd.size() == y.rows() && (!dx || dx.tensor.shape() == y.shape()) &&
              (!dbranch || dbranch.tensor.shape() == y.shape()),
          "rmsnorm backward: y is ", y.shape(), ", dy ", dy.shape(), ", dx ", dx.tensor.shape(), ", dbranch ",
          dbranch.tensor.shape(), ", rstd ", rstd.shape(), "; these do not fit together");
  if (!dx && !dbranch) return;
  visit_float(y.dtype(), [&]<class T>() {
    T *to_x = dx ? dx.tensor.data<T>() : nullptr, *to_branch = dbranch ? dbranch.tensor.data<T>() : nullptr;
    if constexpr (kHasCuda) {
      if (y.device().is_cuda())
        return cuda::rmsnorm_backward<T>(stream, y.rows(), y.columns(), to_x, dx.accumulate, to_branch,
                                         dbranch.accumulate, dy.data<T>(), y.data<T>(), rstd.data<T>());
    }
    cpu::active_rmsnorm_kernels<T>().backward(y.rows(), y.columns(), to_x, dx.accumulate, to_branch, dbranch.accumulate,
                                              dy.data<T>(), y.data<T>(), rstd.data<T>());
  });
}

}  // namespace lockstep::ops
