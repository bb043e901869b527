#pragma once
#include <cstdint>
#include <type_traits>

#include "lockstep/device/cuda_launch.hpp"

/// Asynchronous copies from global to shared memory, which bypass the registers and run while the block computes
/// (compute capability 8.0 and later). On the stand-in a copy is complete at once.
namespace lockstep::gpu {

/// Copies kBytes (4, 8, or a multiple of 16). Both addresses are multiples of 4, 8 or 16.
template <int kBytes>
__device__ inline void copy_async(void* to_shared, const void* from) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes % 16 == 0);
  constexpr int kEach = kBytes < 16 ? kBytes : 16;
#ifdef __CUDACC__
  const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(to_shared));
#pragma unroll
  for (int i = 0; i < kBytes; i += kEach)
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
                 :
                 : "r"(to + static_cast<std::uint32_t>(i)), "l"(static_cast<const char*>(from) + i), "n"(kEach)
                 : "memory");
#else
  using Word = std::conditional_t<kBytes == 4, std::uint32_t, std::uint64_t>;
  struct alignas(kEach) Bytes {  // the stand-in checks the alignment
    Word word[kBytes / sizeof(Word)];
  };
  *static_cast<Bytes*>(to_shared) = *static_cast<const Bytes*>(from);
#endif
}
/// Waits for all copies of the calling thread. Other threads may read them after the next barrier of the block.
__device__ inline void wait_for_copies() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_all;" : : : "memory");
#endif
}

}  // namespace lockstep::gpu
