#pragma once
#include <cstdint>
#include <span>

#include "lockstep/device/device.hpp"

namespace lockstep {

/// An uninitialised array in an arena, valid until its reset. The destructors of its elements do not run.
template <class T>
std::span<T> arena_array(Arena& arena, std::int64_t count) {
  const auto n = static_cast<std::size_t>(count);
  return {static_cast<T*>(arena.allocate(std::max<std::size_t>(1, n * sizeof(T)))), n};
}

}  // namespace lockstep
