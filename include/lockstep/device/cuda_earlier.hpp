#pragma once
#include <cuda_runtime.h>

namespace lockstep::gpu {

/// The earlier work of a stream, as the first parameter of a kernel that may start before that work has ended:
/// programmatic dependent launch, compute capability 9.0 and later. The first statement of such a kernel is
/// `earlier.wait();`, in every thread. gpu::launch() passes the argument, and allows the early start only to kernels
/// with this parameter; a kernel without it starts after all earlier work. The stand-in reports a kernel with it whose
/// threads end, meet at a barrier, or read or write global memory before their wait, also where kernels do not start
/// early.
///
/// Why every access after the wait is in order (CUDA Programming Guide, "Programmatic Dependent Launch and
/// Synchronization", and PTX ISA, griddepcontrol):
/// - The wait returns when the grids that this one depends on have completed, not when they have allowed the start, and
///   their memory operations are visible.
/// - These are only the direct dependencies. All threads of the kernel before have waited, too, so it completes after
///   everything before it. A kernel without the parameter, of ours, cuBLASLt or NCCL, starts after all earlier work has
///   completed. By induction, all earlier work of the stream has completed when the wait returns.
/// - An early start is possible only from one kernel to the next one. Copies, fills and graphs begin after all earlier
///   work has completed, and a kernel after them starts when they have. An event happens, and another stream that
///   waits for it continues, when the kernels before it have completed. A kernel that also waits for another stream
///   (NCCL's) starts after that work, or has it among its dependencies, which the wait covers.
/// - No kernel needs an early start, which is never guaranteed. Kernels whose blocks wait for one another (cooperative
///   launches) take no part: all their blocks must find room at once, which waiting blocks would occupy.
///
/// Parameters of the kernel, __shared__ memory and registers may be used before the wait.
///
/// The compiler may move a load through a `const __restrict__` pointer above the wait, because the pointer promises
/// that nobody writes this memory while the kernel runs. tests/gpu/waits.sh checks the machine code for it.
class Earlier {
 public:
  /// Waits for the earlier work; then lets the next kernel start, which waits in turn. A start is possible once all
  /// blocks of this kernel have called this, so the next kernel takes only room that this one leaves. Its blocks start
  /// while this kernel runs, but not before the one in front of it has ended: no more than one grid waits at a time.
  __device__ void wait() const {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
#endif
  }
};

/// Whether these are the types of the parameters of a kernel that waits.
template <class... Params>
inline constexpr bool kWaits = false;
template <class... Others>
inline constexpr bool kWaits<Earlier, Others...> = true;

}  // namespace lockstep::gpu
