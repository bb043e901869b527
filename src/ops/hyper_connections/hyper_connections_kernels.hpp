#pragma once
#include <cstdint>

#include "lockstep/ops/dispatch.hpp"
#include "lockstep/ops/hyper_connections.hpp"

namespace lockstep::ops {

/// The extents of a call: N tokens of n streams of C channels. Equal streams: x holds one of them, and maps lack Hres.
struct HyperExtents {
  std::int64_t tokens, streams, channels, maps;
  std::int64_t written;  ///< streams of the result: n, or 1 for their sum
  [[gnu::always_inline]] constexpr bool equal() const { return maps == 2 * streams; }
  [[gnu::always_inline]] constexpr bool summed() const { return written < streams; }
  /// Columns of x.
  [[gnu::always_inline]] constexpr std::int64_t width() const { return equal() ? channels : streams * channels; }
};
/// Of streams x of their maps. errors  Error naming the shapes if they do not fit
HyperExtents hyper_extents(const char* what, const Tensor& x, const Tensor& maps, std::int64_t n);

}  // namespace lockstep::ops

namespace lockstep::ops::cpu {

/// How raw products become gates. The columns of maps are Hpre, Hpost and, if `mixes`, Hres.
template <class T>
struct HyperGates {
  std::int64_t streams, steps;
  bool mixes;
  T alpha[3];
  const T* bias[3];
  std::int64_t maps() const { return streams * (mixes ? 2 + streams : 2); }
};

/// Serial kernels on N tokens of n streams of C channels.
template <class T>
struct HyperKernels {
  /// scale_i = 1 / sqrt(mean_c x_ic^2 + eps); raw_ik *= scale_i; maps from raw.
  void (*maps)(std::int64_t tokens, std::int64_t width, T* maps, T* raw, T* scale, const T* x, T eps,
               const HyperGates<T>& gates);
  /// dmaps becomes the gradient of W r. The gradients of alpha pre, post, res and of all biases are added to sums (3 +
  /// maps).
  void (*maps_gradient)(std::int64_t tokens, T* dmaps, T* sums, const T* raw, const HyperGates<T>& gates);
  /// dx_ic += sum_k dmaps_ik scale_i weight_kc - x_ic scale_i^2 sum_k(dmaps_ik raw_ik) / width (unless dx is null),
  /// then dmaps_ik *= scale_i. weight (maps, width) holds the three weights.
  void (*input_gradient)(std::int64_t tokens, std::int64_t width, std::int64_t maps, T* dx, T* dmaps, const T* raw,
                         const T* scale, const T* x, const T* weight);
};

LOCKSTEP_KERNELS(HyperKernels, hyper_kernels)

}  // namespace lockstep::ops::cpu
