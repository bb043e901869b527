#pragma once
#include <cstddef>

namespace lockstep {

/// Sets a part of a Buffer in host memory to zero and returns its whole pages to the system until they are written.
void discard(void* memory, std::size_t size_bytes);

}  // namespace lockstep
