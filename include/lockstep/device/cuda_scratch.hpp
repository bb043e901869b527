#pragma once
#include <cstddef>
#include <cstdint>

#include "lockstep/device/device.hpp"

namespace lockstep::gpu {

/// GPU memory for what one call of an op needs between its kernels (partial sums, a library's workspace). It belongs to
/// the calling thread and is the same for all its calls, which is safe because a stream runs them one after another: a
/// call that goes to another stream than the one before waits for the device first. It grows and is never shrunk, so a
/// loop of equal steps allocates once. Only where kHasCuda.
std::byte* scratch(const Stream& stream, std::size_t size_bytes);

/// How several arrays lie in one piece of scratch memory.
class ScratchPlan {
 public:
  template <class T>
  struct Piece {
    std::size_t offset;
    T* in(std::byte* memory) const { return reinterpret_cast<T*>(memory + offset); }
  };
  template <class T>
  Piece<T> add(std::int64_t count) {
    const Piece<T> piece{size_bytes_};
    size_bytes_ += (static_cast<std::size_t>(count) * sizeof(T) + kAlign - 1) / kAlign * kAlign;
    return piece;
  }
  std::size_t size_bytes() const { return size_bytes_; }

 private:
  static constexpr std::size_t kAlign = 256;
  std::size_t size_bytes_ = 0;
};

}  // namespace lockstep::gpu
