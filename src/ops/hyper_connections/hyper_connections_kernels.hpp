#pragma once
#include <cstdint>

#include "lockstep/ops/dispatch.hpp"
#include "lockstep/ops/hyper_connections.hpp"

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

/// The extents of a call. `equal`: x holds one of n equal streams, and maps lack Hres; `summed`: only the sum of the
/// streams is written.
struct HyperExtents {
  std::int64_t tokens, streams, channels, maps;
  bool equal = false, summed = false;
  std::int64_t width() const { return equal ? channels : streams * channels; }  ///< columns of x
};

/// Reading and writing as in ops/hyper_connections.hpp. Targets may be null; those of maps are added to, the others if
/// `add`.
template <class T>
struct HyperStreamKernels {
  void (*read)(const HyperExtents& extents, T* u, const T* x, const T* maps);
  void (*read_gradient)(const HyperExtents& extents, T* dx, bool add, T* dmaps, const T* du, const T* x, const T* maps);
  void (*write)(const HyperExtents& extents, T* out, const T* x, const T* maps, const T* y);
  void (*write_gradient)(const HyperExtents& extents, T* dx, bool add_x, T* dy, bool add_y, T* dmaps, const T* dout,
                         const T* x, const T* maps, const T* y);
};

LOCKSTEP_KERNELS(HyperKernels, hyper_kernels)
LOCKSTEP_KERNELS(HyperStreamKernels, hyper_stream_kernels)

}  // namespace lockstep::ops::cpu

namespace lockstep::ops::cuda {

/// The ops of ops/hyper_connections.hpp on N tokens of n streams, width = n C. Pointers may be null where the targets
/// may be empty. dx of the maps, and dmaps of read and write, are added to. Maps and values kept for them have type
/// real_t<T>: their sums of 1 would not survive rounding to halves.
template <class T>
void hyper_maps_forward(const Stream& stream, real_t<T>* maps, real_t<T>* raw, real_t<T>* scale, const T* x,
                        std::int64_t tokens, std::int64_t width, const HyperConnection& h);
template <class T>
void hyper_maps_backward(const Stream& stream, T* dx, const HyperConnectionGradients& gradients, real_t<T>* dmaps,
                         const real_t<T>* raw, const real_t<T>* scale, const T* x, std::int64_t tokens,
                         std::int64_t width, const HyperConnection& h);
template <class T>
void hyper_read_forward(const Stream& stream, T* u, const T* x, const real_t<T>* maps, std::int64_t tokens,
                        std::int64_t channels, std::int64_t n);
template <class T>
void hyper_read_backward(const Stream& stream, T* dx, bool accumulate, real_t<T>* dmaps, const T* du, const T* x,
                         const real_t<T>* maps, std::int64_t tokens, std::int64_t channels, std::int64_t n);
template <class T>
void hyper_write_forward(const Stream& stream, T* out, const T* x, const real_t<T>* maps, const T* y,
                         std::int64_t tokens, std::int64_t channels, std::int64_t n);
template <class T>
void hyper_write_backward(const Stream& stream, T* dx, bool accumulate_dx, real_t<T>* dmaps, T* dy, bool accumulate_dy,
                          const T* dout, const T* x, const real_t<T>* maps, const T* y, std::int64_t tokens,
                          std::int64_t channels, std::int64_t n);

}  // namespace lockstep::ops::cuda
