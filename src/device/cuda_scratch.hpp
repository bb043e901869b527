#pragma once
#include <cstddef>

#include "lockstep/device/device.hpp"

namespace lockstep::gpu {

/// GPU memory for what one call of an op needs between its kernels (partial sums, a library's workspace). It belongs to
/// the calling thread and is the same for all its calls, which is safe because a stream runs them one after another: a
/// call that goes to another stream than the one before waits for the device first. It grows and is never shrunk, so a
/// loop of equal steps allocates once. Only where kHasCuda.
std::byte* scratch(const Stream& stream, std::size_t size_bytes);

}  // namespace lockstep::gpu
