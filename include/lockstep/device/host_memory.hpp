#pragma once
#include <array>
#include <cstddef>

#include "lockstep/device/device.hpp"

namespace lockstep {

/// The bytes of host memory that the Buffers of this process hold, without page-locked ones, by MemoryUse: the
/// counterpart of GpuMemory::used.
std::array<std::size_t, kMemoryUses> host_memory();

}  // namespace lockstep
