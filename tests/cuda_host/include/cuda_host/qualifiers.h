#pragma once
// The words that CUDA adds to C++.

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))

// A block runs on one thread of the host, so what belongs to a block belongs to that thread. AddressSanitizer guards
// static variables only; kernels then run one at a time.
#ifdef __SANITIZE_ADDRESS__
#define __shared__ static
extern unsigned char sm_bytes[];
#else
#define __shared__ thread_local
extern thread_local unsigned char sm_bytes[];
#endif
