#pragma once
#include <cstddef>
#include <string>

#include "lockstep/device/device.hpp"

namespace lockstep {

/// Whether a data set may be copied to GPU memory: if the copy needs at most `share` of the free memory. Logs whether
/// the GPU or the host therefore makes the batches of training.
///
/// what  the arrays in messages, in the plural: "the windows"
bool may_copy_to_gpu(Device device, const std::string& what, std::size_t size_bytes, double share = 0.25);

}  // namespace lockstep
