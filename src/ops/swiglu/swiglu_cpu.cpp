#include <cmath>

#include "swiglu_kernels.hpp"
#include "ops/common/vecmath.hpp"

namespace lockstep::ops::cpu::LOCKSTEP_ISA {
namespace {

/// 1/(1 + exp -a), computed from e = exp(-|a|) <= 1 so that nothing overflows.
LOCKSTEP_INLINE F sigmoid(F a) {
  const F e = exp(-abs(a));
  const F r = splat(1.f) / (splat(1.f) + e);
  return a > F{} ? r : e * r;
}
double sigmoid(double a) {
  const double e = std::exp(-std::fabs(a)), r = 1 / (1 + e);
  return a > 0 ? r : e * r;
}

/// silu(g) u, and the gradients of g and u for dy. silu'(g) = s + g s (1 - s).
template <class V>
LOCKSTEP_INLINE V value(V g, V u) {
  return g * sigmoid(g) * u;
}
template <class V>
LOCKSTEP_INLINE void gradient(V& g, V& u, V dy, V one) {
  const V s = sigmoid(g), silu = g * s;
  g = dy * u * (s + silu * (one - s));
  u = dy * silu;
}

void forward(std::int64_t rows, std::int64_t width, float* y, const float* gate_up) {
  constexpr std::int64_t kL = kLanes<float>;
  for (std::int64_t m = 0; m < rows; ++m, y += width, gate_up += 2 * width) {
    std::int64_t i = 0;
    for (; i + kL <= width; i += kL) store(y + i, value(load(gate_up + i), load(gate_up + width + i)));
    if (i == width) continue;
    const Lanes<float> lanes(width - i);
    store(y + i, value(load(gate_up + i, lanes), load(gate_up + width + i, lanes)), lanes);
  }
}
void forward(std::int64_t rows, std::int64_t width, double* y, const double* gate_up) {
  for (std::int64_t m = 0; m < rows; ++m, y += width, gate_up += 2 * width)
    for (std::int64_t i = 0; i < width; ++i) y[i] = value(gate_up[i], gate_up[width + i]);
}

void backward(std::int64_t rows, std::int64_t width, float* gate_up, const float* dy) {
  constexpr std::int64_t kL = kLanes<float>;
  for (std::int64_t m = 0; m < rows; ++m, dy += width, gate_up += 2 * width) {
    for (std::int64_t i = 0; i < width; i += kL) {
      const Lanes<float> lanes(width - i < kL ? width - i : kL);
      F g = load(gate_up + i, lanes), u = load(gate_up + width + i, lanes);
      gradient(g, u, load(dy + i, lanes), splat(1.f));
      store(gate_up + i, g, lanes);
      store(gate_up + width + i, u, lanes);
    }
  }
}
void backward(std::int64_t rows, std::int64_t width, double* gate_up, const double* dy) {
  for (std::int64_t m = 0; m < rows; ++m, dy += width, gate_up += 2 * width)
    for (std::int64_t i = 0; i < width; ++i) gradient(gate_up[i], gate_up[width + i], dy[i], 1.0);
}

}  // namespace

template <class T>
const SwigluKernels<T>& swiglu_kernels() {
  static constexpr SwigluKernels<T> kKernels = {forward, backward};
  return kKernels;
}
template const SwigluKernels<float>& swiglu_kernels();
template const SwigluKernels<double>& swiglu_kernels();

}  // namespace lockstep::ops::cpu::LOCKSTEP_ISA
