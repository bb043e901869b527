#pragma once
#include <vector>

#include "cuda_runtime.h"
#include "ordering.hpp"

namespace cuda_host {

/// Checks the pointers in the arguments of a kernel, including those in objects: each must be null, or point to live
/// memory of the stream's device or to live page-locked memory. Returns the first byte of each as used: as written,
/// unless the pointer is to const or is in an object.
///
/// errors   Failure (cudaErrorInvalidValue) that names the kernel and the argument
std::vector<Use> check_pointers(const void* kernel, const std::vector<Argument>& arguments, cudaStream_t stream);

}  // namespace cuda_host
