#include "lockstep/base/error.hpp"
#include "lockstep/device/ledger.hpp"

// In a build for real GPUs. The stand-in of tests/cuda_host has these functions itself.
#if !__has_include(<cuda_host/runtime_api.h>)
namespace lockstep {

std::string why_no_ledger() {
  return "this program drives real GPUs, and CUDA's runtime does not report the accesses, waits and graph nodes that a "
         "ledger holds. Count with the stand-in (make cuda-host), whose kernels are the same; on the GPU, nsys stats "
         "lists kernels, copies and waits with their times, and ncu the bytes that a kernel moved";
}
void start_ledger() { throw Error(Fault::internal, "keeping a ledger of GPU work: " + why_no_ledger()); }
Ledger finish_ledger() { return {}; }

}  // namespace lockstep
#endif
