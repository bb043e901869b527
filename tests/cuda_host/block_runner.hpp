#pragma once
#include <cstddef>
#include <string>

#include "cuda_runtime.h"

/// Runs kernels: the threads of a block are fibers on the calling thread, and blocks run one after another.
namespace cuda_host {

/// Dynamic shared memory that a block may have, as on compute capability 9.0.
inline constexpr std::size_t kMostSharedBytes = 227 << 10;

/// errors  Failure that names the kernel, block and thread: what the kernel did wrong
void run(const cudaLaunchConfig_t& config, const Kernel& kernel);

/// Whether a kernel runs on this thread.
bool in_kernel();
/// Ends the running kernel. The message says what its current thread did.
[[noreturn]] void fault(cudaError_t error, const std::string& message);
/// Whether the address lies below the stack of some fiber of this thread.
bool in_fiber_guard(const void* address);
/// A stack on which a fault can be raised when a fiber's own is full.
std::byte* emergency_stack_top();

}  // namespace cuda_host
