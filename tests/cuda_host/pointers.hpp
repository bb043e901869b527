#pragma once
#include <vector>

#include "cuda_runtime.h"

namespace cuda_host {

/// Checks the pointers that a kernel is given, in objects too: each must be null, or lie in memory of the stream's device
/// or in page-locked memory, not freed.
/// errors  Failure (cudaErrorInvalidValue) that names the kernel and the argument
void check_pointers(const void* kernel, const std::vector<Argument>& arguments, cudaStream_t stream);

}  // namespace cuda_host
