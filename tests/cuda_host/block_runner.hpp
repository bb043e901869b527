#pragma once
#include <cstddef>
#include <string>

#include "cuda_runtime.h"

/// Runs kernels. The threads of a block are fibers on the calling thread, and blocks run one after another.
namespace cuda_host {

/// Dynamic shared memory per block, as on compute capability 9.0.
inline constexpr std::size_t kMostSharedBytes = 227 << 10;

/// Attributes of a launch: whether its blocks may wait for one another, and whether it may start before the kernel in
/// front of it has ended.
bool is_cooperative(const cudaLaunchConfig_t& config);
bool starts_early(const cudaLaunchConfig_t& config);

/// Runs a kernel. A block of a cooperative launch that waits for others keeps its threads and its shared memory while
/// they run.
///
/// errors   Failure that names the kernel, block and thread, and what the kernel did wrong
void run(const cudaLaunchConfig_t& config, const Kernel& kernel);

/// Whether this thread is running a kernel.
bool in_kernel();
/// Ends the running kernel. The message says what its current thread did.
[[noreturn]] void fault(cudaError_t error, const std::string& message);
/// Whether the address is in the guard page below the stack of a fiber of this thread.
bool in_fiber_guard(const void* address);
/// The top of a stack for raising a fault when a fiber's own stack is full.
std::byte* emergency_stack_top();

}  // namespace cuda_host
