#include "lockstep/ops/swiglu.hpp"

#include <omp.h>

#include <algorithm>

#include "ops/common/on_gpu.hpp"
#include "ops/gemm/gemm_kernels.hpp"
#include "swiglu_kernels.hpp"

namespace lockstep::ops {

namespace {

/// Bytes of gate and up in a block of rows, which stay in the second-level cache until they are combined.
constexpr std::int64_t kBlockBytes = 512 << 10;
constexpr std::int64_t kMostRows = 112;

struct SwigluShape {
  std::int64_t m, width, k;
};
SwigluShape shape_of(const char* what, const Tensor& y, const Tensor& gate_up, const Tensor& x, const Tensor& weight) {
  const SwigluShape s = {x.rows(), y.columns(), x.columns()};
  require(y.rows() == s.m && weight.shape() == Shape{2 * s.width, s.k}, what, ": x is ", x.shape(), ", y ", y.shape(),
          ", so weight must be (", 2 * s.width, ", ", s.k, "), not ", weight.shape());
  require(!gate_up || (gate_up.rows() == s.m && gate_up.columns() == 2 * s.width), what, ": gate_up must be (", s.m,
          ", ", 2 * s.width, "), not ", gate_up.shape());
  return s;
}

}  // namespace

void swiglu_forward(Stream& stream, const Tensor& y, const Tensor& gate_up, const Tensor& x, const Tensor& weight) {
  const SwigluShape s = shape_of("swiglu", y, gate_up, x, weight);
  if (s.m == 0 || s.width == 0) return;
  if (on_gpu(x, [&]<class T>() {
        cuda::swiglu_forward<T>(stream, s.m, s.width, s.k, y.data<T>(), gate_up ? gate_up.data<T>() : nullptr,
                                x.data<T>(), weight.data<T>());
      }))
    return;
  visit_float(x.dtype(), [&]<class T>() {
    constexpr auto kSize = static_cast<std::int64_t>(sizeof(T));
    const cpu::GemmKernels<T>& gemm = cpu::active_gemm_kernels<T>();
    const std::int64_t n = 2 * s.width;
    const T* packed = cpu::packed_weight<T>(n, s.k, weight.data<T>(), true);
    const std::int64_t rows = std::clamp<std::int64_t>(kBlockBytes / (n * kSize), 1, kMostRows);
    const std::int64_t blocks = (s.m + rows - 1) / rows;
#pragma omp parallel for schedule(dynamic) if (!omp_in_parallel() && blocks > 1)
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::int64_t first = s.m * block / blocks, count = s.m * (block + 1) / blocks - first;
      T* both =
          gate_up
              ? gate_up.data<T>() + first * n
              : static_cast<T*>(cpu::thread_scratch(cpu::Scratch::partial, static_cast<std::size_t>(rows * n * kSize)));
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
  if (on_gpu(x, [&]<class T>() {
        using cuda::Product;
        T* both = gate_up.data<T>();
        cuda::swiglu_gate_backward<T>(stream, s.m, s.width, both, dy.data<T>());
        if (dx)
          cuda::product<T>(stream, Product::nn, s.m, s.k, 2 * s.width, dx.tensor.data<T>(), both, weight.data<T>(),
                           dx.accumulate);
        if (dweight)
          cuda::product<T>(stream, Product::tn, 2 * s.width, s.k, s.m, dweight.tensor.data<real_t<T>>(), both,
                           x.data<T>(), dweight.accumulate);
      }))
    return;
  visit_float(x.dtype(), [&]<class T>() {
    T* both = gate_up.data<T>();
    cpu::active_swiglu_kernels<T>().backward(s.m, s.width, both, dy.data<T>());
    if (dx)
      cpu::product<T>(s.m, s.k, 2 * s.width, dx.tensor.data<T>(), both, weight.data<T>(), false, dx.accumulate, {},
                      cpu::Operand::weight);
    if (dweight)
      cpu::product_tn<T>(2 * s.width, s.k, s.m, dweight.tensor.data<T>(), both, x.data<T>(), dweight.accumulate);
  });
}

}  // namespace lockstep::ops
