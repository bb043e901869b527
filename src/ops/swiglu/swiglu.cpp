#include "lockstep/ops/swiglu.hpp"

#include <omp.h>

#include <algorithm>

#include "lockstep/ops/rmsnorm.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/gemm/gemm_kernels.hpp"
#include "swiglu_kernels.hpp"

namespace lockstep::ops {

namespace {

/// Bytes of gate and up in a block of rows, which stay in the second-level cache until they are combined.
constexpr std::int64_t kBlockBytes = 512 << 10;
constexpr std::int64_t kMostRows = 112;

SwigluShape shape_of(const char* what, const Tensor& y, const Tensor& gate_up, const Tensor& x, const Tensor& weight) {
  const SwigluShape s = {x.rows(), y.columns(), x.columns()};
  require(y.rows() == s.m && weight.shape() == Shape{2 * s.width, s.k}, what, ": x is ", x.shape(), ", y ", y.shape(),
          ", so weight must be (", 2 * s.width, ", ", s.k, "), not ", weight.shape());
  require(!gate_up || (gate_up.rows() == s.m && gate_up.columns() == 2 * s.width), what, ": gate_up must be (", s.m,
          ", ", 2 * s.width, "), not ", gate_up.shape());
  return s;
}

/// The gradients of x and weight from the gradient of gate and up, on a GPU.
template <class T>
void products_backward(Stream& stream, const SwigluShape& s, const Target& dx, const Target& dweight,
                       const Tensor& gate_up, const Tensor& x, const Tensor& weight) {
  using cuda::Product;
  const T* both = gate_up.data<T>();
  if (dx) cuda::product<T, T>(stream, Product::nn, s.m, s.k, 2 * s.width, dx.tensor, both, weight, dx.accumulate);
  if (dweight)
    cuda::product<T, real_t<T>>(stream, Product::tn, 2 * s.width, s.k, s.m, dweight.tensor, both, x,
                                dweight.accumulate);
}

}  // namespace

void swiglu_forward(Stream& stream, const Tensor& y, const Tensor& gate_up, const Tensor& x, const Tensor& weight) {
  const SwigluShape s = shape_of("swiglu", y, gate_up, x, weight);
  if (s.m == 0 || s.width == 0) return;
  on_gpu(x, [&]<class T>() { cuda::swiglu_forward<T>(stream, s, y, gate_up, x, weight, {}); });
  on_cpu(x, [&]<class T>() {
    constexpr auto kSize = static_cast<std::int64_t>(sizeof(T));
    const cpu::GemmKernels<T>& gemm = cpu::active_gemm_kernels<T>();
    const std::int64_t n = 2 * s.width;
    const T* packed = cpu::packed_weight<T>(n, s.k, weight, true);
    const std::int64_t rows = std::clamp<std::int64_t>(kBlockBytes / (n * kSize), 1, kMostRows);
    const std::int64_t blocks = (s.m + rows - 1) / rows;
#pragma omp parallel for schedule(dynamic) if (!omp_in_parallel() && blocks > 1)
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::int64_t first = s.m * block / blocks, count = s.m * (block + 1) / blocks - first;
      T* both = gate_up ? gate_up.data<T>() + first * n : cpu::thread_scratch<T>(cpu::Scratch::partial, rows * n);
      gemm.rows(count, n, s.k, both, x.data<T>() + first * s.k, packed, false, {});
      cpu::active_swiglu_kernels<T>().forward(count, s.width, y.data<T>() + first * s.width, both);
    }
  });
}

void swiglu_backward(Stream& stream, Target dx, Target dweight, const Tensor& dy, const Tensor& gate_up,
                     const Tensor& x, const Tensor& weight) {
  const SwigluShape s = shape_of("swiglu backward", dy, gate_up, x, weight);
  require(!dx || dx.tensor.shape() == x.shape(), "swiglu backward: x is ", x.shape(), ", so dx must be too, not ",
          dx.tensor.shape());
  require(!dweight || dweight.tensor.shape() == weight.shape(), "swiglu backward: weight is ", weight.shape(),
          ", so dweight must be too, not ", dweight.tensor.shape());
  on_gpu(x, [&]<class T>() {
    cuda::swiglu_gate_backward<T>(stream, s.m, s.width, gate_up, dy, {});
    products_backward<T>(stream, s, dx, dweight, gate_up, x, weight);
  });
  on_cpu(x, [&]<class T>() {
    T* both = gate_up.data<T>();
    cpu::active_swiglu_kernels<T>().backward(s.m, s.width, both, dy);
    if (dx)
      cpu::product<T>(s.m, s.k, 2 * s.width, dx.tensor, both, weight, false, dx.accumulate, {}, cpu::Operand::weight);
    if (dweight) cpu::product_tn<T>(2 * s.width, s.k, s.m, dweight.tensor, both, x, dweight.accumulate);
  });
}

void normed_swiglu_forward(Stream& stream, const Tensor& y, const Tensor& z, const Tensor& rstd, const Tensor& gate_up,
                           const Tensor& x, const Tensor& weight, double eps) {
  const SwigluShape s = shape_of("normed swiglu", y, gate_up, x, weight);
  require(z.shape() == x.shape() && !gate_up == !rstd && (!rstd || rstd.size() == s.m), "normed swiglu: x is ",
          x.shape(), ", so z must be too, not ", z.shape(), ", and rstd must have ", s.m,
          " elements if gate_up is kept, not the shape ", rstd.shape());
  const bool gpu = on_gpu(x, [&]<class T>() {
    using R = real_t<T>;
    cuda::swiglu_forward<T>(stream, s, y, gate_up, x, weight,
                            {.x = x, .z = z, .rstd = rstd, .columns = s.k, .eps = static_cast<R>(eps)});
  });
  if (gpu) return;
  rmsnorm_forward(stream, z, rstd, x, eps);
  swiglu_forward(stream, y, gate_up, z, weight);
}

void normed_swiglu_backward(Stream& stream, Target dx, Target dweight, const Tensor& dy, const Tensor& dz,
                            const Tensor& gate_up, const Tensor& z, const Tensor& rstd, const Tensor& x,
                            const Tensor& weight) {
  const SwigluShape s = shape_of("normed swiglu backward", dy, gate_up, x, weight);
  require(dz.shape() == x.shape() && z.shape() == x.shape() && rstd.size() == s.m &&
              (!dx || dx.tensor.shape() == x.shape()) && (!dweight || dweight.tensor.shape() == weight.shape()),
          "normed swiglu backward: x is ", x.shape(), ", dz ", dz.shape(), ", z ", z.shape(), ", rstd ", rstd.shape(),
          ", dx ", dx.tensor.shape(), ", weight ", weight.shape(), ", dweight ", dweight.tensor.shape(),
          "; these do not fit together");
  const bool gpu = on_gpu(x, [&]<class T>() {
    cuda::swiglu_gate_backward<T>(
        stream, s.m, s.width, gate_up, dy,
        {.x = x, .rstd = rstd, .columns = s.k, .dz = dz, .dx = dx.tensor, .add = dx.accumulate});
    products_backward<T>(stream, s, {dx.tensor, true}, dweight, gate_up, x, weight);
  });
  if (gpu) return;
  swiglu_backward(stream, {dz, true}, dweight, dy, gate_up, z, weight);
  rmsnorm_backward(stream, dx, dz, z, rstd);
}

}  // namespace lockstep::ops
