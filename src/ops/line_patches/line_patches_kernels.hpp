#pragma once
#include <cstdint>

#include "lockstep/base/real.hpp"
#include "lockstep/ops/dispatch.hpp"
#include "lockstep/ops/line_patches.hpp"

namespace lockstep::ops::cpu {

/// One colour component of one pixel: `factor` times row `index` of the transposed weight (3 P^2, D).
template <class T>
struct PixelTerm {
  std::int64_t index;
  T factor;
};
template <class T>
struct LinePatchesKernels {
  /// y = base + sum of terms, over D columns.
  void (*gather)(std::int64_t width, T* y, const T* base, std::int64_t terms, const PixelTerm<T>* term, const T* rows);
  /// rows[term.index] += factor dy.
  void (*scatter)(std::int64_t width, T* rows, std::int64_t terms, const PixelTerm<T>* term, const T* dy);
  /// y += factor x over n elements.
  void (*add)(std::int64_t n, T* y, T factor, const T* x);
};

LOCKSTEP_KERNELS(LinePatchesKernels, line_patches_kernels)

}  // namespace lockstep::ops::cpu

namespace lockstep::ops {

struct LinePatches {
  std::int64_t pictures, size;      ///< number of pictures, and pixels per row
  std::int64_t side, patch, width;  ///< patches per row of a picture, pixels per row of a patch, D
  constexpr std::int64_t tokens() const { return side * side; }
  constexpr std::int64_t pixels() const { return patch * patch; }
};

namespace cuda {

/// The pictures are in host memory.
template <class T>
void line_patches_forward(const Stream& stream, const LinePatches& s, T* y, const LinePictures& pictures,
                          const T* weight, const T* bias);
/// dweight and dbias (unless null) are added to.
template <class T>
void line_patches_backward(const Stream& stream, const LinePatches& s, real_t<T>* dweight, real_t<T>* dbias,
                           const T* dy, const LinePictures& pictures);

}  // namespace cuda
}  // namespace lockstep::ops
