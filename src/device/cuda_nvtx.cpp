#include <nvtx3/nvToolsExt.h>

#include "cuda_device.hpp"
#include "lockstep/base/profile.hpp"

namespace lockstep::gpu {

void mirror_spans() {
  profile::set_mirror([](const char* name) { nvtxRangePushA(name); }, [] { nvtxRangePop(); });
}

}  // namespace lockstep::gpu
