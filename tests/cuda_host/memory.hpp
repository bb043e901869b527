#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>

/// Device memory and page-locked host memory.
///
/// Every allocation has unique addresses, never reused, between unmapped guard pages, so that accesses after free or
/// out of bounds fault. New memory is filled with NaN (all bits set). The host cannot access device memory: the fault
/// handler opens it when a kernel or the runtime touches it, and it is closed again when the host has waited for a
/// device.
namespace cuda_host {

enum class MemoryKind { device, pinned };

struct Allocation {
  std::byte* begin = nullptr;
  std::size_t size = 0;
  MemoryKind kind = MemoryKind::device;
  int device = 0;
  bool freed = false;
  const void* end() const { return begin + size; }
};

/// The memory size of each device in bytes. LOCKSTEP_CUDA_HOST_MEMORY (MiB) sets it.
std::size_t device_bytes();
/// Bytes of a device that are in use.
std::size_t device_bytes_used(int device);

/// Allocates memory.
///
/// errors   Failure (cudaErrorMemoryAllocation)
void* allocate(MemoryKind kind, int device, std::size_t size);
/// Frees memory.
///
/// errors   Failure if `memory` was not returned by allocate() for this kind
void release(MemoryKind kind, void* memory);
/// The allocation that contains the address, or ends at it. Freed allocations are also found.
std::optional<Allocation> find_allocation(const void* address);
/// Describes an address: "12 bytes past the end of the 4096 bytes at 0x... on cuda:0".
std::string describe_address(const void* address);
/// Whether the address is in the range that device memory is allocated from.
bool in_device_range(const void* address);
/// Whether the address is in the range of device or page-locked memory.
bool in_own_range(const void* address);
/// The addresses from which device memory and page-locked memory are allocated.
std::span<const std::byte> device_range();
std::span<const std::byte> pinned_range();
/// Makes the allocation that contains the address accessible. Returns false if there is none. For the fault handler.
bool open_device_memory(const void* address);
/// Makes all device memory inaccessible to the host.
void close_device_memory();
/// Checks that [address, address + size) is in one live allocation, or entirely in ordinary host memory.
///
/// errors   Failure (cudaErrorInvalidValue) with a message that begins with `doing`
void check_range(const char* doing, const void* address, std::size_t size);

/// While an object of this class lives, the calling thread may access device memory: it acts as a device or as the
/// runtime.
class DeviceAccess {
 public:
  DeviceAccess() { ++depth(); }
  ~DeviceAccess() { --depth(); }
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
  static bool granted() { return depth() > 0; }

 private:
  static int& depth();
};

}  // namespace cuda_host
