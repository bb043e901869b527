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
  constexpr std::int64_t kL = kLanes<T>;
  const auto value = [](Vec<T> g, Vec<T> u) { return g / over_sigmoid(g) * u; };
  for (std::int64_t m = 0; m < rows; ++m, y += width, gate_up += 2 * width) {
    std::int64_t i = 0;
    for (; i + kL <= width; i += kL) store(y + i, value(load(gate_up + i), load(gate_up + width + i)));
    if (i == width) continue;
    const Lanes<T> lanes(width - i);
    store(y + i, value(load(gate_up + i, lanes), load(gate_up + width + i, lanes)), lanes);
  }
}

/// Replaces g and u by their gradients for dy. silu'(g) = s + g s (1 - s). The later layers have displaced g and u from
/// the caches since the forward pass, so they are prefetched two rows ahead.
template <class T>
void backward(std::int64_t rows, std::int64_t width, T* gate_up, const T* dy) {
  constexpr std::int64_t kL = kLanes<T>;
  for (std::int64_t m = 0; m < rows; ++m, dy += width, gate_up += 2 * width) {
    for (std::int64_t i = 0; i < width; i += kL) {
      const Lanes<T> lanes(width - i < kL ? width - i : kL);
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
