#pragma once
#include <utility>

#include "lockstep/device/has_cuda.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// If x is on a GPU, runs f.template operator()<T>() with the storage type T of x (float, double, bf16, f16) and
/// returns true. Otherwise returns false. A build without CUDA does not instantiate f.
///
///   if (on_gpu(x, [&]<class T>() { cuda::name<T>(stream, ...); })) return;
///   visit_float(x.dtype(), [&]<class T>() { cpu::name<T>(...); });
template <class F>
bool on_gpu(const Tensor& x, F&& f) {
  if constexpr (kHasCuda) {
    if (x.device().is_cuda()) {
      visit_storage(x.dtype(), std::forward<F>(f));
      return true;
    }
  }
  return false;
}

}  // namespace lockstep::ops
