#pragma once
#include <cuda_runtime.h>

#include "lockstep/base/error.hpp"

namespace lockstep::gpu {

namespace detail {
[[noreturn]] inline void fail(cudaError_t status, const std::string& doing) {
  throw Error(Fault::internal, join(doing, ": ", cudaGetErrorString(status), " (", cudaGetErrorName(status), ")"));
}
}  // namespace detail

/// errors  Error that says what was being done and what the runtime says of it
template <class... Parts>
void check(cudaError_t status, const Parts&... doing) {
  if (status != cudaSuccess) detail::fail(status, join(doing...));
}

}  // namespace lockstep::gpu
