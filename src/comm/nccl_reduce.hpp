#pragma once
#include "lockstep/comm/gpu_reduce.hpp"

namespace lockstep {

/// Defined only where kHasCuda.
std::unique_ptr<GpuReduce> make_nccl_reduce(Communicator& comm, Device device, double timeout_s);

}  // namespace lockstep
