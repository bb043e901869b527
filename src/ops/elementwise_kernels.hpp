#pragma once
#include <cstdint>

#include "lockstep/device/device.hpp"

namespace lockstep::ops::cuda {

/// y_i (+)= factor x_i, and times *by unless by is null.
template <class T>
void scale(const Stream& stream, std::int64_t n, T* y, const T* x, T factor, const T* by, bool accumulate);
/// y_i = a_i + b_i
template <class T>
void add(const Stream& stream, std::int64_t n, T* y, const T* a, const T* b);

}  // namespace lockstep::ops::cuda
