#pragma once

/// Why the accesses of the kernel that runs on this thread are examined: bits. Kernels report each access
/// (accesses.cpp), so without a reason it costs one load.
namespace cuda_host {

inline constexpr unsigned kCounts = 1;    ///< a ledger is kept
inline constexpr unsigned kMustWait = 2;  ///< the running thread of the kernel has not waited for the earlier work yet
inline constinit thread_local unsigned watched = 0;

}  // namespace cuda_host
