#include <cxxabi.h>

#include <cstdlib>
#include <memory>

#include "cuda_device.hpp"
#include "lockstep/device/cuda_launch.hpp"

namespace lockstep::gpu {

namespace {

__global__ void empty_kernel() {}

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

}  // namespace

bool launches_wait() {
  static const bool wait = [] {
    const char* text = std::getenv("LOCKSTEP_CUDA_SYNC");
    return text != nullptr && *text != '\0' && *text != '0';
  }();
  return wait;
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

int resident_blocks(const Stream& stream, const void* kernel, int threads, std::size_t shared_bytes) {
  if (attribute(stream, cudaDevAttrCooperativeLaunch) == 0) return 0;
  // Fails if static and dynamic shared memory exceed a block's limit. The error is cleared: it concerns no later call.
  if (shared_bytes > kSharedWithoutAsking && cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                                  static_cast<int>(shared_bytes)) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  int blocks = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared_bytes),
        "asking how many blocks of a kernel fit at once");
  return blocks * attribute(stream, cudaDevAttrMultiProcessorCount);
}

void try_out(const Stream& stream) {
  launch(stream, {}, empty_kernel);
  synchronize(stream.native());
}

}  // namespace lockstep::gpu
