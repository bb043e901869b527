#pragma once
#include <cuda_runtime.h>

#include "lockstep/base/error.hpp"

namespace lockstep::gpu {

namespace detail {
[[noreturn]] inline void throw_error(cudaError_t status, const std::string& doing) {
  const char* remedy = "";
  if (status == cudaErrorNoKernelImageForDevice)
    remedy = "; this program has no code for this GPU: build it with CMAKE_CUDA_ARCHITECTURES naming its architecture";
  if (status == cudaErrorUnsupportedPtxVersion)
    remedy =
        "; the driver is older than the toolkit and cannot compile PTX for this GPU: update it, or build with "
        "CMAKE_CUDA_ARCHITECTURES naming the GPU's architecture";
  throw Error(*remedy == '\0' ? Fault::internal : Fault::usage,
              join(doing, ": ", cudaGetErrorString(status), " (", cudaGetErrorName(status), ")", remedy));
}
}  // namespace detail

/// Throws if a CUDA call failed. `doing` describes the call. errors  Error (internal) with the runtime's text
template <class... Parts>
void check(cudaError_t status, const Parts&... doing) {
  if (status != cudaSuccess) detail::throw_error(status, join(doing...));
}

}  // namespace lockstep::gpu
