#pragma once
#include <vector>

#include "cuda_runtime.h"
#include "ordering.hpp"

namespace cuda_host {

/// Checks the pointers that a kernel is given, in objects too: each must be null, or lie in memory of the stream's device
/// or in page-locked memory, not freed.
/// The first byte of each is returned as used: written unless it is known to be const, or is in an object.
/// errors  Failure (cudaErrorInvalidValue) that names the kernel and the argument
std::vector<Use> check_pointers(const void* kernel, const std::vector<Argument>& arguments, cudaStream_t stream);

}  // namespace cuda_host
