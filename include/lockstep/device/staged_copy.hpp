#pragma once
#include <cstddef>
#include <span>

#include "lockstep/device/device.hpp"

namespace lockstep {

/// A copy, in GPU memory, of a range of pinned memory. As long as it lives, kernels that the same thread enqueues read
/// the range there and not over the bus. The caller enqueues the copy. At most one lives per thread.
class StagedCopy {
 public:
  /// size_bytes  0: no range
  StagedCopy(const void* range, const void* copy, std::size_t size_bytes);
  StagedCopy(const StagedCopy&) = delete;
  StagedCopy& operator=(const StagedCopy&) = delete;
  ~StagedCopy();
  /// The address at which kernels read the value that the host sees at p: in the copy, or p itself.
  static const void* of(const void* p);
};

template <class T>
const T* staged_copy(const T* p) {
  return static_cast<const T*>(StagedCopy::of(p));
}

/// Whether p, an operand of the device's kernels, points to GPU memory. If not, the host can read it, and kernels that
/// read the same values many times should receive a copy.
bool in_gpu_memory(Device device, const void* p);
/// The values if the host can read them, else none. Operations do not check ids that lie in GPU memory.
template <class T>
std::span<const T> host_readable(Device device, std::span<const T> values) {
  return in_gpu_memory(device, values.data()) ? std::span<const T>() : values;
}

}  // namespace lockstep
