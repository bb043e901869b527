#pragma once
#include <utility>

#include "lockstep/device/cuda_types.hpp"
#include "lockstep/device/has_cuda.hpp"
#include "lockstep/tensor/tensor.hpp"

/// An op has one part for each device:
///
///   on_gpu(x, [&]<class T>() { cuda::name<T>(stream, ...); });
///   on_cpu(x, [&]<class T>() { cpu::name<T>(...); });
///
/// Each returns whether it ran. A build without CUDA does not instantiate the first.
namespace lockstep::ops {

/// If the stream is a GPU's, runs f(stream), which is a template: [&](const auto& stream) { ... }. A kernel that is no
/// template is [[maybe_unused]].
template <class F>
bool on_gpu(const Stream& stream, F&& f) {
  if constexpr (kHasCuda) {
    if (stream.device().is_cuda()) f(stream);
  }
  return stream.device().is_cuda();
}

/// Like f.template operator()<T>(), but only for types of this build. errors  Error (usage) for another one
template <class F>
auto if_built(F f) {
  return [f]<class T>() {
    if constexpr (kHasCudaType<T>)
      f.template operator()<T>();
    else
      require_cuda_type(name(dtype_of<T>::value));
  };
}

/// If x is on a GPU, runs f.template operator()<T>() with the storage type T of x: float, double, bf16, f16.
template <class F>
bool on_gpu(const Tensor& x, F&& f) {
  if constexpr (kHasCuda) {
    if (x.device().is_cuda()) visit_storage(x.dtype(), if_built(f));
  }
  return x.device().is_cuda();
}
/// The same for kernels without halves: T is float or double.
template <class F>
bool on_gpu_in_floats(const Tensor& x, F&& f) {
  if constexpr (kHasCuda) {
    if (x.device().is_cuda()) visit_float(x.dtype(), if_built(f));
  }
  return x.device().is_cuda();
}

/// If x is on the CPU, runs f.template operator()<T>() with T = float or double.
template <class F>
bool on_cpu(const Tensor& x, F&& f) {
  if (!x.device().is_cuda()) visit_float(x.dtype(), std::forward<F>(f));
  return !x.device().is_cuda();
}

}  // namespace lockstep::ops
