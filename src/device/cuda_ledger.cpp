#include "cuda_device.hpp"
#if __has_include(<cuda_host/ledger.h>)
#include <cuda_host/ledger.h>
namespace lockstep::gpu {
std::string why_no_ledger() { return cuda_host::why_no_ledger(); }
void start_ledger() { cuda_host::start_ledger(); }
Ledger finish_ledger() { return cuda_host::finish_ledger(); }
}  // namespace lockstep::gpu
#else
namespace lockstep::gpu {
std::string why_no_ledger() {
  return "this program drives real GPUs, and CUDA's runtime does not report the accesses, waits and graph nodes that a "
         "ledger holds. Count with the stand-in (make cuda-host), whose kernels are the same; on the GPU, nsys stats "
         "lists kernels, copies and waits with their times, and ncu the bytes that a kernel moved";
}
void start_ledger() {}
Ledger finish_ledger() { return {}; }
}  // namespace lockstep::gpu
#endif
