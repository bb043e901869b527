#include "lockstep/device/cuda_scratch.hpp"

#include <algorithm>
#include <vector>

#include "cuda_device.hpp"

namespace lockstep::gpu {

namespace {
thread_local std::uint64_t moves = 0;

/// The entry of the stream's device in a list with one entry per device.
template <class T>
T& of_device(std::vector<T>& by_device, const Stream& stream) {
  const auto index = static_cast<std::size_t>(stream.device().index);
  if (by_device.size() <= index) by_device.resize(index + 1);
  return by_device[index];
}
}  // namespace

std::uint64_t scratch_moves() { return moves; }

std::byte* scratch(const Stream& stream, std::size_t size_bytes) {
  constexpr std::size_t kLeast = std::size_t{32} << 20;  // the workspace that cuBLASLt uses on current GPUs
  struct OfDevice {
    Buffer memory;
    void* stream = nullptr;
  };
  thread_local std::vector<OfDevice> by_device;
  OfDevice& mine = of_device(by_device, stream);
  if (mine.stream != stream.native()) {
    if (mine.stream != nullptr) synchronize_device();
    mine.stream = stream.native();
  }
  if (mine.memory.size_bytes() < size_bytes) {
    mine.memory =
        Buffer(stream.device(), std::max({size_bytes, 2 * mine.memory.size_bytes(), kLeast}), MemoryUse::workspace);
    ++moves;
  }
  return mine.memory.data();
}

unsigned* block_counters(const Stream& stream) {
  thread_local std::vector<Buffer> by_device;
  Buffer& mine = of_device(by_device, stream);
  if (!mine.data()) mine = Buffer(stream.device(), kBlockCounters * sizeof(unsigned), MemoryUse::workspace);
  return reinterpret_cast<unsigned*>(mine.data());
}

}  // namespace lockstep::gpu
