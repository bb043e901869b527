#pragma once
#include <cstddef>
#include <optional>
#include <string>

/// Memory of the devices, and page-locked host memory.
///
/// Every allocation has addresses of its own, never used again, with unmapped memory before and behind it: one that has
/// been freed, or left, is noticed. New memory holds NaN (all bits set). Device memory is closed to the host: it opens by
/// itself, through the handler of the fault, when a kernel or the runtime touches it, and is closed again whenever the
/// host has waited for a device.
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

/// Bytes on each device; LOCKSTEP_CUDA_HOST_MEMORY (MiB) sets it.
std::size_t device_bytes();
/// Bytes of a device that are in use.
std::size_t device_bytes_used(int device);

/// errors  Failure (cudaErrorMemoryAllocation)
void* allocate(MemoryKind kind, int device, std::size_t size);
/// errors  Failure if this is not what an allocation of this kind returned
void release(MemoryKind kind, void* memory);
/// The allocation that holds the address, freed ones too; one past the end belongs to it.
std::optional<Allocation> find_allocation(const void* address);
/// Where an address lies: "12 bytes past the end of the 4096 bytes at 0x... on cuda:0".
std::string describe_address(const void* address);
/// Whether the address belongs to the range that device memory is made from.
bool in_device_range(const void* address);
/// The same for device and page-locked memory.
bool in_own_range(const void* address);
/// Opens the allocation that holds the address; false if there is none. For the handler of faults.
bool open_device_memory(const void* address);
/// Closes all device memory to the host.
void close_device_memory();
/// Checks that [address, address + size) lies in one live allocation, or is all the host's own.
/// errors  Failure (cudaErrorInvalidValue) that begins with `doing`
void check_range(const char* doing, const void* address, std::size_t size);

/// While one lives the calling thread may touch device memory: it is a device, or the runtime.
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
