#include "lockstep/ops/rmsnorm.hpp"

#include "ops/common/on_gpu.hpp"
#include "rmsnorm_kernels.hpp"

namespace lockstep::ops {

namespace {
template <class T>
T* data_of(const Tensor& t) {
  return t ? t.data<T>() : nullptr;
}
}  // namespace

void rmsnorm_forward(Stream& stream, const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& branch,
                     double eps) {
  require(y.shape() == x.shape() && (!branch || branch.shape() == x.shape()), "rmsnorm: x is ", x.shape(),
          ", so y and the branch must be too, not ", y.shape(), " and ", branch.shape());
  require(!rstd || rstd.size() == x.rows(), "rmsnorm: x is ", x.shape(), ", so rstd must have ", x.rows(),
          " elements, not ", rstd.size());
  if (on_gpu(x, [&]<class T>() {
        cuda::rmsnorm_forward<T>(stream, x.rows(), x.columns(), y.data<T>(), data_of<real_t<T>>(rstd), x.data<T>(),
                                 data_of<T>(branch), static_cast<real_t<T>>(eps));
      }))
    return;
  visit_float(x.dtype(), [&]<class T>() {
    cpu::active_rmsnorm_kernels<T>().forward(x.rows(), x.columns(), y.data<T>(), data_of<T>(rstd), x.data<T>(),
                                             data_of<T>(branch), static_cast<T>(eps));
  });
}

void rmsnorm_backward(Stream& stream, Target dx, Target dbranch, const Tensor& dy, const Tensor& y,
                      const Tensor& rstd) {
  require(dy.shape() == y.shape() && rstd.size() == y.rows() && (!dx || dx.tensor.shape() == y.shape()) &&
              (!dbranch || dbranch.tensor.shape() == y.shape()),
          "rmsnorm backward: y is ", y.shape(), ", dy ", dy.shape(), ", dx ", dx.tensor.shape(), ", dbranch ",
          dbranch.tensor.shape(), ", rstd ", rstd.shape(), "; these do not fit together");
  if (!dx && !dbranch) return;
  if (on_gpu(y, [&]<class T>() {
        cuda::rmsnorm_backward<T>(stream, y.rows(), y.columns(), data_of<T>(dx.tensor), dx.accumulate,
                                  data_of<T>(dbranch.tensor), dbranch.accumulate, dy.data<T>(), y.data<T>(),
                                  rstd.data<real_t<T>>());
      }))
    return;
  visit_float(y.dtype(), [&]<class T>() {
    cpu::active_rmsnorm_kernels<T>().backward(y.rows(), y.columns(), data_of<T>(dx.tensor), dx.accumulate,
                                              data_of<T>(dbranch.tensor), dbranch.accumulate, dy.data<T>(), y.data<T>(),
                                              rstd.data<T>());
  });
}

}  // namespace lockstep::ops
