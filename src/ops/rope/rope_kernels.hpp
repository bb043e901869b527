#pragma once
#include <cstdint>

#include "lockstep/base/real.hpp"
#include "lockstep/device/device.hpp"
#include "lockstep/ops/dispatch.hpp"

namespace lockstep::ops::cpu {

/// Rotates the first heads * 2 * half columns of each row of `width` elements. Row m has position m % positions. sign
/// -1 rotates back.
template <class T>
using RopeKernel = void (*)(std::int64_t rows, std::int64_t width, std::int64_t heads, std::int64_t half,
                            std::int64_t positions, T* x, const T* cos, const T* sin, T sign);

LOCKSTEP_KERNELS(RopeKernel, rope_kernel)

}  // namespace lockstep::ops::cpu

namespace lockstep::ops::cuda {

/// As on the CPU, with tables of type real_t<T>.
template <class T>
void rope(const Stream& stream, std::int64_t rows, std::int64_t width, std::int64_t heads, std::int64_t half,
          std::int64_t positions, T* x, const real_t<T>* cos, const real_t<T>* sin, real_t<T> sign);

}  // namespace lockstep::ops::cuda
