#pragma once
// The keywords that CUDA adds to C++.

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

// A block runs on one host thread, so the memory of a block is thread-local. AddressSanitizer guards static variables
// only, so with it kernels run one at a time.
#ifdef __SANITIZE_ADDRESS__
#define __shared__ static
extern unsigned char sm_bytes[];
#else
#define __shared__ thread_local
extern thread_local unsigned char sm_bytes[];
#endif
