#include "ops/common/vecmath.hpp"
#include "swiglu_kernels.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

/// 1/sigmoid(a) = 1 + exp -a: exp limits its argument, so nothing overflows.
template <class V>
LOCKSTEP_INLINE V over_sigmoid(V a) {
  return exp(-a) + (V{} + 1);
}

/// silu(g) u = g s u with s = sigmoid(g).
template <class T>
void forward(std::int64_t rows, std::int64_t width, T* y, const T* gate_up) {
  for (std::int64_t m = 0; m < rows; ++m, y += width, gate_up += 2 * width)
    for_vectors<T>(width, [&](const auto& get, const auto& put) {
      const Vec<T> g = get(gate_up);
      put(y, g / over_sigmoid(g) * get(gate_up + width));
    });
}

/// Replaces g and u by their gradients for dy. silu'(g) = s + g s (1 - s). The later layers have displaced g and u from
/// the caches since the forward pass, so they are prefetched two rows ahead.
template <class T>
void backward(std::int64_t rows, std::int64_t width, T* gate_up, const T* dy) {
  for (std::int64_t m = 0; m < rows; ++m, dy += width, gate_up += 2 * width) {
    for (std::int64_t i = 0; i < width; i += kLanes<T>) {
      const Lanes<T> lanes = lanes_at<T>(i, width);
      __builtin_prefetch(gate_up + 4 * width + i, 1);
      __builtin_prefetch(gate_up + 5 * width + i, 1);
      const Vec<T> g = load(gate_up + i, lanes), u = load(gate_up + width + i, lanes), by = load(dy + i, lanes);
      const Vec<T> s = splat(T{1}) / over_sigmoid(g), silu = g * s;
      store(gate_up + i, by * u * fma(silu, splat(T{1}) - s, s), lanes);
      store(gate_up + width + i, by * silu, lanes);
    }
  }
}

}  // namespace

LOCKSTEP_KERNEL_TABLE(SwigluKernels, swiglu_kernels, forward<T>, backward<T>)

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
