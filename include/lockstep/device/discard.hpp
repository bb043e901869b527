#pragma once
#include <cstddef>

namespace lockstep {

/// Sets a range of a Buffer in host memory to zero and returns its whole pages to the system until the next write.
void discard(void* memory, std::size_t size_bytes);

}  // namespace lockstep
