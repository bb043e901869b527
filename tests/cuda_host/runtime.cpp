#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <span>

#include "block_runner.hpp"
#include "error.hpp"
#include "memory.hpp"
#include "pointers.hpp"
#include "streams.hpp"
#include "symbols.hpp"

using namespace cuda_host;

namespace {
/// What a block may ask for: that of compute capability 9.0, or less by LOCKSTEP_CUDA_HOST_SHARED.
std::size_t most_shared_bytes_of_a_block() {
  const char* kib = std::getenv("LOCKSTEP_CUDA_HOST_SHARED");
  return kib ? std::min(kMostSharedBytes, std::size_t{std::strtoul(kib, nullptr, 10)} << 10) : kMostSharedBytes;
}
/// Two, or those of another GPU by LOCKSTEP_CUDA_HOST_MULTIPROCESSORS.
int multiprocessors() {
  const char* count = std::getenv("LOCKSTEP_CUDA_HOST_MULTIPROCESSORS");
  return count ? std::max(1, std::atoi(count)) : 2;
}
void require_device(int device) {
  int count = 0;
  cudaGetDeviceCount(&count);
  require(device >= 0 && device < count, cudaErrorInvalidDevice, "describing cuda:", device, " of ", count);
}
}  // namespace

// ---- devices ----
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return guarded([&] {
    require_device(device);
    *properties = {};
    std::snprintf(properties->name, sizeof properties->name, "stand-in for a GPU (host build, tests only)");
    properties->totalGlobalMem = device_bytes();
    properties->sharedMemPerBlock = 48 << 10;
    properties->sharedMemPerBlockOptin = most_shared_bytes_of_a_block();
    properties->major = 9;
    properties->multiProcessorCount = multiprocessors();
    properties->warpSize = warpSize;
    properties->maxThreadsPerBlock = 1024;
    properties->pciBusID = number_on_host(device);
    properties->uuid.bytes[15] = static_cast<char>(number_on_host(device));
  });
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return guarded([&] {
    require_device(device);
    switch (attribute) {
      case cudaDevAttrMultiProcessorCount:
        *value = multiprocessors();
        return;
      case cudaDevAttrL2CacheSize:
        *value = 48 << 20;
        return;
      case cudaDevAttrCooperativeLaunch:
        *value = 1;
        return;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = static_cast<int>(most_shared_bytes_of_a_block());
        return;
    }
    throw Failure{cudaErrorInvalidValue, text("device attribute ", attribute, " is not known here")};
  });
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  std::snprintf(id, static_cast<std::size_t>(length), "0000:%02x:00.0", number_on_host(device));
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = driver_version();
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = kRuntimeVersion;
  return cudaSuccess;
}

// ---- memory ----
namespace {
/// Freeing waits for the device that the memory was allocated on, and for the others.
void settle_users(const void* memory) {
  const auto found = find_allocation(memory);
  if (!found) return;
  settle(found->device);
  settle_others(found->device);
}
/// Allocating and freeing, in the name of a function of the runtime.
cudaError_t take(const char* call, MemoryKind kind, void** memory, std::size_t size) {
  return guarded([&] {
    require(kind == MemoryKind::device || driver_version() >= kRuntimeVersion, cudaErrorInsufficientDriver,
            "page-locked memory without a driver");
    refuse_while_capturing(call);
    settle_others(current_device());
    *memory = allocate(kind, current_device(), size);
  });
}
cudaError_t give_back(const char* call, MemoryKind kind, void* memory) {
  return guarded([&] {
    refuse_while_capturing(call);
    settle_users(memory);
    release(kind, memory);
  });
}
}  // namespace
cudaError_t cudaMalloc(void** memory, std::size_t size) { return take("cudaMalloc", MemoryKind::device, memory, size); }
cudaError_t cudaFree(void* memory) { return give_back("cudaFree", MemoryKind::device, memory); }
cudaError_t cudaMallocHost(void** memory, std::size_t size) {
  return take("cudaMallocHost", MemoryKind::pinned, memory, size);
}
cudaError_t cudaFreeHost(void* memory) { return give_back("cudaFreeHost", MemoryKind::pinned, memory); }
cudaError_t cudaMemGetInfo(std::size_t* unused, std::size_t* total) {
  return guarded([&] {
    static const bool full = std::getenv("LOCKSTEP_CUDA_HOST_FULL") != nullptr;
    *total = device_bytes();
    *unused = full ? 0 : *total - std::min(*total, device_bytes_used(current_device()));
  });
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return guarded([&] {
    *attributes = {};
    attributes->device = -1;
    const auto found = find_allocation(pointer);
    if (!found || found->freed) {
      attributes->hostPointer = const_cast<void*>(pointer);
      return;
    }
    attributes->device = found->device;
    attributes->devicePointer = const_cast<void*>(pointer);
    attributes->type = found->kind == MemoryKind::device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    if (found->kind == MemoryKind::pinned) attributes->hostPointer = const_cast<void*>(pointer);
  });
}

namespace {
bool on_device(const void* pointer) { return in_device_range(pointer); }
bool pageable(const void* pointer) { return !find_allocation(pointer); }

void copy(void* to, const void* from, std::size_t size) {
  const DeviceAccess access;
  std::memcpy(to, from, size);
}
}  // namespace

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size, cudaMemcpyKind kind, cudaStream_t stream) {
  return guarded([&] {
    if (size == 0) return;
    check_range("copying to", to, size);
    check_range("copying from", from, size);
    const bool to_device = on_device(to), from_device = on_device(from);
    const bool right = kind == cudaMemcpyDefault ||
                       (to_device == (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) &&
                        from_device == (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice));
    require(right, cudaErrorInvalidMemcpyDirection, "copying from ", describe_address(from), " to ",
            describe_address(to), ", which is another direction than the call says");
    const Uses uses{.name = "copy", .ranges = {{to, size, true}, {from, size, false}}};
    // Pageable host memory is staged: it is read before the call returns, and written before the call returns.
    if (!is_capturing(stream) && !from_device && pageable(from)) {
      auto staged = std::make_shared<std::vector<std::byte>>(size);
      copy(staged->data(), from, size);
      submit(stream, uses, [=] { copy(to, staged->data(), size); });
    } else {
      require(!is_capturing(stream) || (!pageable(from) && !pageable(to)), cudaErrorStreamCaptureUnsupported,
              "capturing a copy of pageable host memory");
      submit(stream, uses, [=] { copy(to, from, size); });
    }
    if (!is_capturing(stream) && !to_device && pageable(to))
      require(cudaStreamSynchronize(stream) == cudaSuccess, cudaErrorUnknown, "waiting for a copy");
  });
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t size, cudaStream_t stream) {
  return guarded([&] {
    if (size == 0) return;
    check_range("setting", memory, size);
    require(find_allocation(memory).has_value(), cudaErrorInvalidValue, "setting ", size, " bytes of host memory at ",
            memory);
    submit(stream, {.name = "cudaMemset", .ranges = {{memory, size, true}}}, [=] {
      const DeviceAccess access;
      std::memset(memory, value, size);
    });
  });
}
cudaError_t cudaMemset(void* memory, int value, std::size_t size) {
  return cudaMemsetAsync(memory, value, size, nullptr);  // as on a GPU, the host does not wait for it
}

// ---- kernels ----
namespace {
constexpr std::size_t kSharedWithoutAsking = 48 << 10;  // static and dynamic together
std::mutex attributes_mutex;
std::map<const void*, std::size_t> most_shared_bytes;  // by kernel

std::size_t allowed_shared_bytes(const void* kernel) {
  const std::lock_guard lock(attributes_mutex);
  const auto found = most_shared_bytes.find(kernel);
  const std::size_t least = kSharedWithoutAsking - std::min(kSharedWithoutAsking, own_shared_bytes(kernel));
  return found == most_shared_bytes.end() ? least : std::max(least, found->second);
}
}  // namespace

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  return guarded([&] {
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return;
    const std::size_t own = own_shared_bytes(kernel);
    require(value >= 0 && static_cast<std::size_t>(value) + own <= most_shared_bytes_of_a_block(),
            cudaErrorInvalidValue, "kernel ", function_name(kernel), ": ", value, " bytes of shared memory and ", own,
            " static ones, of at most ", most_shared_bytes_of_a_block());
    const std::lock_guard lock(attributes_mutex);
    most_shared_bytes[kernel] = static_cast<std::size_t>(value);
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  const char* code = std::getenv("LOCKSTEP_CUDA_HOST_CODE");
  *attributes = {.ptxVersion = code ? std::atoi(code) : 90, .binaryVersion = 90};
  return cudaSuccess;
}

cudaError_t cudaFuncGetName(const char** name, const void* kernel) {
  static thread_local std::string last;
  last = function_name(kernel);
  *name = last.c_str();
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int block_threads,
                                                          std::size_t shared_bytes) {
  *blocks = 2048 / std::max(1, block_threads);
  constexpr std::size_t kReserved = 1 << 10;  // of each block
  *blocks = std::min(*blocks, static_cast<int>((most_shared_bytes_of_a_block() + kReserved) /
                                               (shared_bytes + own_shared_bytes(kernel) + kReserved)));
  return cudaSuccess;
}

namespace cuda_host {

namespace {
/// Counts the kernels of the process that run. The one with the number LOCKSTEP_CUDA_HOST_FAULT loses the devices.
void count_kernel(const void* kernel) {
  static const char* const number = std::getenv("LOCKSTEP_CUDA_HOST_FAULT");
  static std::atomic<long> ran = 0;
  if (number == nullptr || ++ran != std::atol(number)) return;
  lose_devices({cudaErrorIllegalAddress, text("an illegal memory access was encountered (LOCKSTEP_CUDA_HOST_FAULT, in ",
                                              function_name(kernel), ")")});
  require_devices();
}
}  // namespace

cudaError_t launch(const cudaLaunchConfig_t& config, Kernel kernel, const std::vector<Argument>& arguments) {
  return guarded([&] {
    const auto name = [&] { return "kernel " + function_name(kernel.function); };
    const dim3 grid = config.gridDim, block = config.blockDim;
    require(!std::getenv("LOCKSTEP_CUDA_HOST_NO_CODE"), cudaErrorNoKernelImageForDevice,
            "no kernel image is available for execution on the device");
    const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
    if (threads == 0 || threads > 1024 || block.z > 64)
      throw Failure{cudaErrorInvalidConfiguration,
                    text(name(), ": blocks of ", block.x, "x", block.y, "x", block.z, " threads, of 1 to 1024")};
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
      throw Failure{cudaErrorInvalidConfiguration, text(name(), ": a grid of ", grid.x, "x", grid.y, "x", grid.z,
                                                        " blocks, of 1 to 2147483647 x 65535 x 65535")};
    if (config.dynamicSmemBytes > allowed_shared_bytes(kernel.function))
      throw Failure{cudaErrorInvalidValue,
                    text(name(), ": ", config.dynamicSmemBytes, " bytes of dynamic shared memory, but ",
                         allowed_shared_bytes(kernel.function), " are reserved for it")};
    if (is_cooperative(config)) {
      require(!starts_early(config), cudaErrorNotSupported, name(),
              ": a cooperative launch that starts early, whose blocks may find no room beside those of the kernel "
              "before");
      int resident = 0;
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel.function, static_cast<int>(threads),
                                                    config.dynamicSmemBytes);
      resident *= multiprocessors();
      const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
      if (blocks > static_cast<std::uint64_t>(resident))
        throw Failure{cudaErrorCooperativeLaunchTooLarge,
                      text(name(), ": a cooperative launch of ", blocks, " blocks, but only ", resident,
                           " fit on the device at once")};
    }
    Uses uses{.kernel = kernel.function, .ranges = check_pointers(kernel.function, arguments, config.stream)};
    submit(config.stream, std::move(uses),
           [own = config, attributes = std::vector(config.attrs, config.attrs + config.numAttrs),
            kernel = std::move(kernel)]() mutable {
             count_kernel(kernel.function);
             own.attrs = attributes.data();  // the caller's live only during the call
             run(own, kernel);
           });
  });
}

}  // namespace cuda_host
