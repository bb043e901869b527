#include "lockstep/device/cuda_launch.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>

namespace lockstep::gpu {

namespace {

__global__ void empty_kernel(Earlier earlier) { earlier.wait(); }

std::string name_of(const void* kernel) {
  const char* mangled = nullptr;
#if CUDART_VERSION >= 12030
  if (cudaFuncGetName(&mangled, kernel) != cudaSuccess) cudaGetLastError();
#endif
  if (mangled == nullptr) return join("at ", kernel);
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(mangled, nullptr, nullptr, &status),
                                                         std::free);
  return name ? name.get() : mangled;
}

int attribute(const Stream& stream, cudaDeviceAttr which) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, stream.device().index),
        "reading a property of cuda:", stream.device().index);
  return value;
}

bool switched_on(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr && *text != '\0' && *text != '0';
}

std::atomic<bool>& early() {
  static std::atomic<bool> is = switched_on("LOCKSTEP_CUDA_DEPENDENT");
  return is;
}

/// Whether the code of a kernel that the current GPU runs was compiled for compute capability 9.0 or later and so
/// contains the wait, and whether the driver has edges for early starts in graphs. A program without code for this GPU
/// but with PTX of an earlier one has kernels without the wait: hence the version of the PTX.
bool has_wait(const void* kernel) {
  constexpr int kFirstVersion = 90, kFirstDriver = 12030;
  int driver = 0;
  check(cudaDriverGetVersion(&driver), "asking for the version of the driver");
  cudaFuncAttributes code = {};
  check(cudaFuncGetAttributes(&code, kernel), "asking for the version of the code of the kernel ", name_of(kernel));
  return driver >= kFirstDriver && std::min(code.ptxVersion, code.binaryVersion) >= kFirstVersion;
}

}  // namespace

bool launches_wait() {
  static const bool wait = switched_on("LOCKSTEP_CUDA_SYNC");
  return wait;
}

bool kernels_start_early() { return early(); }
void let_kernels_start_early(bool wanted) { early() = wanted; }

bool may_start_early(const Stream& stream, const void* kernel) {
  if (!early()) return false;
  thread_local std::map<std::pair<int, const void*>, bool> known;
  const auto [found, is_new] = known.try_emplace({stream.device().index, kernel});
  if (is_new) found->second = has_wait(kernel);
  return found->second;
}

void after_launch(cudaError_t status, const Stream& stream, const void* kernel, const Grid& grid) {
  if (status != cudaSuccess)
    check(status, "launching ", grid.grid.x, "x", grid.grid.y, "x", grid.grid.z, " blocks of ", grid.block.x, "x",
          grid.block.y, "x", grid.block.z, " threads of the kernel ", name_of(kernel));
  const auto native = static_cast<cudaStream_t>(stream.native());
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(native, &capture), "asking for the state of a stream");
  if (capture != cudaStreamCaptureStatusNone) return;
  const cudaError_t ran = cudaStreamSynchronize(native);
  if (ran != cudaSuccess) check(ran, "running the kernel ", name_of(kernel));
}

std::size_t most_shared_bytes(const Stream& stream) {
  return static_cast<std::size_t>(attribute(stream, cudaDevAttrMaxSharedMemoryPerBlockOptin));
}

cudaError_t reserve_shared(const Stream& stream, const void* kernel, std::size_t size_bytes) {
  static std::mutex mutex;
  static std::map<std::pair<int, const void*>, std::size_t> reserved;
  const std::lock_guard lock(mutex);
  std::size_t& most = reserved[{stream.device().index, kernel}];
  if (size_bytes <= most) return cudaSuccess;
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(size_bytes));
  if (status == cudaSuccess) most = size_bytes;
  return status;
}

std::int64_t cached_bytes(const Stream& stream) { return attribute(stream, cudaDevAttrL2CacheSize) / 2; }

int resident_blocks(const Stream& stream, const void* kernel, int threads, std::size_t shared_bytes) {
  if (attribute(stream, cudaDevAttrCooperativeLaunch) == 0) return 0;
  // Fails if static and dynamic shared memory exceed a block's limit. The error is cleared: it concerns no later call.
  if (shared_bytes > 0 && reserve_shared(stream, kernel, shared_bytes) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  int blocks = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared_bytes),
        "asking how many blocks of a kernel fit at once");
  return blocks * attribute(stream, cudaDevAttrMultiProcessorCount);
}

}  // namespace lockstep::gpu

void lockstep::require_usable(Device device) {
  const Stream stream(device);
  gpu::launch(stream, {}, gpu::empty_kernel);
  stream.synchronize();
}
