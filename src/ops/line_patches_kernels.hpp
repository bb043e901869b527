#pragma once
#include <cstdint>

#include "dispatch.hpp"

namespace lockstep::ops::cpu {

/// One colour component of one pixel: row `index` of the transposed weight (3 P^2, D), times `factor`.
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

LOCKSTEP_EACH_ISA(template <class T> LinePatchesKernels<T> line_patches_kernels();)

template <class T>
LinePatchesKernels<T> active_line_patches_kernels() {
  return LOCKSTEP_ACTIVE(line_patches_kernels<T>());
}

}  // namespace lockstep::ops::cpu
