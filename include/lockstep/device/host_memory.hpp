#pragma once
#include <array>
#include <cstddef>

#include "lockstep/device/device.hpp"

namespace lockstep {

/// The bytes of host memory that the Buffers of this process hold, without page-locked ones, by MemoryUse: the
/// counterpart of GpuMemory::used.
std::array<std::size_t, kMemoryUses> host_memory();
/// Sets a range of a Buffer in host memory to zero and returns its whole pages to the system until the next write.
void discard(void* memory, std::size_t size_bytes);

}  // namespace lockstep
