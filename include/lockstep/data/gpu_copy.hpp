#pragma once
#include <cstddef>
#include <string>

#include "lockstep/device/device.hpp"

namespace lockstep {

/// Whether a data set may have a copy in GPU memory: if that is at most `share` of what is free. Logs what follows: who
/// makes the batches of training.
///
/// what  the arrays, in the plural: "the windows"
bool may_copy_to_gpu(Device device, const std::string& what, std::size_t size_bytes, double share = 0.25);

}  // namespace lockstep
