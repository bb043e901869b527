#pragma once
#include <cstdint>

#include "lockstep/base/real.hpp"
#include "lockstep/device/device.hpp"

namespace lockstep::ops::cuda {

/// See ops/row_groups.hpp: `rows` rows of C elements on one side, n times as many on the other. The result is divided
/// by `divisor`.
template <class T>
void copy_rows(const Stream& stream, std::int64_t rows, std::int64_t columns, std::int64_t n, T* y, bool accumulate,
               const T* x, real_t<T> divisor = 1);
template <class T>
void sum_rows(const Stream& stream, std::int64_t rows, std::int64_t columns, std::int64_t n, T* y, bool accumulate,
              const T* x, real_t<T> divisor = 1);
template <class T>
void mask_rows(const Stream& stream, std::int64_t rows, std::int64_t columns, T* y, bool accumulate, const T* x,
               const std::int32_t* ids);

}  // namespace lockstep::ops::cuda
