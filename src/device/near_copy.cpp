#include "lockstep/device/near_copy.hpp"

#include <cassert>
#include <cstdint>

namespace lockstep {

namespace {
struct Range {
  const std::byte *begin = nullptr, *copy = nullptr;
  std::size_t size_bytes = 0;
};
thread_local Range range;
}  // namespace

NearCopy::NearCopy(const void* from, const void* copy, std::size_t size_bytes) {
  assert(range.size_bytes == 0);
  range = {static_cast<const std::byte*>(from), static_cast<const std::byte*>(copy), size_bytes};
}

NearCopy::~NearCopy() { range = {}; }

const void* NearCopy::of(const void* p) {
  const auto at = reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(range.begin);
  return at < range.size_bytes ? range.copy + at : p;
}

}  // namespace lockstep
