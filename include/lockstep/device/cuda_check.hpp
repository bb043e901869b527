#pragma once
#include <cuda_runtime.h>

#include "lockstep/base/error.hpp"

namespace lockstep::gpu {

namespace detail {
[[noreturn]] inline void fail(cudaError_t status, const std::string& doing) {
  throw Error(Fault::internal, join(doing, ": ", cudaGetErrorString(status), " (", cudaGetErrorName(status), ")"));
}
}  // namespace detail

/// Throws if a CUDA call failed. `doing` describes the call. errors  Error (internal) with the runtime's text
template <class... Parts>
void check(cudaError_t status, const Parts&... doing) {
  if (status != cudaSuccess) detail::fail(status, join(doing...));
}

}  // namespace lockstep::gpu
