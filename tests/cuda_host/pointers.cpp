#include "pointers.hpp"

#include <sys/mman.h>

#include <cstring>

#include "error.hpp"
#include "memory.hpp"
#include "streams.hpp"
#include "symbols.hpp"

namespace cuda_host {

namespace {

/// Whether this address is mapped in host memory. Filters numbers in objects that only look like addresses.
bool mapped(std::uintptr_t address) {
  constexpr std::uintptr_t kPage = 4096;
  return msync(reinterpret_cast<void*>(address / kPage * kPage), 1, MS_ASYNC) == 0;
}

/// Why a kernel on the device may not use the pointer; empty if it may.
std::string wrong(const void* pointer, int device) {
  const auto found = find_allocation(pointer);
  if (!found) return text(describe_address(pointer), "; a kernel reads device or page-locked memory only");
  if (found->freed) return describe_address(pointer);
  if (found->kind == MemoryKind::device && found->device != device)
    return text(describe_address(pointer), ", but the stream is of cuda:", device);
  return {};
}

}  // namespace

std::vector<Use> check_pointers(const void* kernel, const std::vector<Argument>& arguments, cudaStream_t stream) {
  const int device = device_of(stream);
  std::vector<Use> uses;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Argument& argument = arguments[i];
    if (!argument.is_pointer && argument.size < sizeof(void*)) continue;
    const auto* bytes = static_cast<const std::byte*>(argument.bytes);
    for (std::size_t at = 0; at + sizeof(void*) <= argument.size; at += sizeof(void*)) {
      std::uintptr_t word;
      std::memcpy(&word, bytes + at, sizeof word);
      const auto* pointer = reinterpret_cast<const void*>(word);
      if (word == 0) continue;
      if (!argument.is_pointer) {
        const bool looks_like_one = word >= std::uintptr_t{1} << 40 && word < std::uintptr_t{1} << 47;
        if (!looks_like_one || !(in_own_range(pointer) ? find_allocation(pointer).has_value() : mapped(word))) continue;
      }
      const std::string fault = wrong(pointer, device);
      if (!fault.empty())
        throw Failure{cudaErrorInvalidValue,
                      text("kernel ", function_name(kernel), ": argument ", i + 1,
                           argument.is_pointer ? "" : text(" (at byte ", at, ")"), " points to ", fault)};
      uses.push_back({pointer, 1, argument.is_pointer && argument.may_write});
    }
  }
  return uses;
}

}  // namespace cuda_host
