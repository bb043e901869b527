#pragma once
#include <cstddef>

namespace lockstep {

/// A copy, in GPU memory, of a range of pinned memory. As long as it lives, kernels that the same thread enqueues read
/// the range there and not over the bus. The caller enqueues the copy. At most one lives per thread.
class NearCopy {
 public:
  /// size_bytes  0: no range
  NearCopy(const void* range, const void* copy, std::size_t size_bytes);
  NearCopy(const NearCopy&) = delete;
  NearCopy& operator=(const NearCopy&) = delete;
  ~NearCopy();
  /// Where kernels read what the host sees at p: in the copy, or at p.
  static const void* of(const void* p);
};

/// NearCopy::of(p)
template <class T>
const T* near_copy(const T* p) {
  return static_cast<const T*>(NearCopy::of(p));
}

}  // namespace lockstep
