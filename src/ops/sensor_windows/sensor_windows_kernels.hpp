#pragma once
#include "lockstep/device/device.hpp"
#include "lockstep/ops/sensor_windows.hpp"

namespace lockstep::ops::cuda {

/// The first `used` values, zeros beyond `length`, of each of `count` sequences; signals (n, channels, length). See
/// ops/sensor_windows.hpp.
template <class T>
void sensor_windows(const Stream& stream, std::int64_t count, std::int64_t used, std::int64_t channels,
                    std::int64_t length, T* y, const double* signals, const WindowPick* picks,
                    const SensorSequence* sequences);

}  // namespace lockstep::ops::cuda
