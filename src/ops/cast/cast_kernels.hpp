#pragma once
#include <cstdint>

#include "lockstep/device/device.hpp"

namespace lockstep::ops::cuda {

/// y_i = x_i, rounded to nearest, ties to even.
template <class To, class From>
void cast(const Stream& stream, std::int64_t n, To* y, const From* x);

}  // namespace lockstep::ops::cuda
