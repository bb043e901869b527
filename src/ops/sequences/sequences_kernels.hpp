#pragma once
#include <cstdint>

#include "lockstep/base/real.hpp"
#include "lockstep/device/device.hpp"

namespace lockstep::ops::cuda {

/// N sequences of E elements.
template <class T>
void add_to_each(const Stream& stream, std::int64_t n, std::int64_t e, T* y, const T* x, const T* table);
template <class T>
void sum_of_all(const Stream& stream, std::int64_t n, std::int64_t e, real_t<T>* table, const T* x, bool accumulate);

}  // namespace lockstep::ops::cuda
