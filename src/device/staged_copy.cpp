#include "lockstep/device/staged_copy.hpp"

#include <cassert>
#include <cstdint>

#include "cuda_device.hpp"
#include "lockstep/device/has_cuda.hpp"

namespace lockstep {

namespace {
struct Range {
  const std::byte *begin = nullptr, *copy = nullptr;
  std::size_t size_bytes = 0;
};
thread_local Range range;
}  // namespace

StagedCopy::StagedCopy(const void* from, const void* copy, std::size_t size_bytes) {
  assert(range.size_bytes == 0);
  range = {static_cast<const std::byte*>(from), static_cast<const std::byte*>(copy), size_bytes};
}

StagedCopy::~StagedCopy() { range = {}; }

const void* StagedCopy::of(const void* p) {
  const auto at = reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(range.begin);
  return at < range.size_bytes ? range.copy + at : p;
}

bool in_gpu_memory([[maybe_unused]] Device device, [[maybe_unused]] const void* p) {
  if constexpr (kHasCuda) return p != nullptr && device.is_cuda() && gpu::is_gpu_memory(p);
  return false;
}

}  // namespace lockstep
