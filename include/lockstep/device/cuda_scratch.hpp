#pragma once
#include <cstddef>
#include <cstdint>

#include "lockstep/device/device.hpp"

namespace lockstep::gpu {

/// GPU memory for intermediate data between the kernels of one op call (partial sums, a library's workspace). Every
/// call of a thread receives the same memory. This is safe because a stream runs its calls in order; a call for a
/// different stream than the previous call first waits for the device. The memory grows but never shrinks, so a loop of
/// equal steps allocates once. Only where kHasCuda.
std::byte* scratch(const Stream& stream, std::size_t size_bytes);
/// The same for `count` elements.
template <class T>
T* scratch(const Stream& stream, std::int64_t count) {
  return reinterpret_cast<T*>(scratch(stream, static_cast<std::size_t>(count) * sizeof(T)));
}

inline constexpr int kBlockCounters = 1024;
/// Counters (kBlockCounters) of finished blocks, for launches of the calling thread. They are 0 between launches:
/// is_last_block() (cuda_last_block.hpp) resets them. Only where kHasCuda.
unsigned* block_counters(const Stream& stream);

/// Layout of several arrays in one block of scratch memory.
class ScratchPlan {
 public:
  template <class T>
  struct Array {
    std::size_t offset;
    T* in(std::byte* memory) const { return reinterpret_cast<T*>(memory + offset); }
  };
  template <class T>
  Array<T> add(std::int64_t count) {
    const Array<T> array{size_bytes_};
    size_bytes_ += (static_cast<std::size_t>(count) * sizeof(T) + kAlign - 1) / kAlign * kAlign;
    return array;
  }
  std::size_t size_bytes() const { return size_bytes_; }

 private:
  static constexpr std::size_t kAlign = 256;
  std::size_t size_bytes_ = 0;
};

}  // namespace lockstep::gpu
