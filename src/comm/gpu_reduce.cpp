#include "lockstep/comm/gpu_reduce.hpp"

#include <set>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/device/has_cuda.hpp"

namespace lockstep {

bool gpus_are_apart(Communicator& comm, Device device) {
  const std::string mine =
      device.is_cuda() ? log::speaker().host + " " + gpu_uuid(device.index) : join("no GPU on rank ", comm.rank());
  std::set<std::string> different;
  for (const std::string& gpu : comm.all_gather_text(mine, "GPUs")) different.insert(gpu);
  return comm.agree(device.is_cuda(), "devices") && static_cast<int>(different.size()) == comm.size();
}

std::unique_ptr<GpuReduce> make_gpu_reduce(Communicator& comm, Device device, double timeout_s) {
  require_usage(gpus_are_apart(comm, device),
                "option run.backend = nccl: it needs --device cuda and a GPU for each of ", comm.size(),
                " ranks; use --backend mpi, or fewer ranks per node");
  if constexpr (kHasCuda) return make_nccl_reduce(comm, device, timeout_s);
  return nullptr;
}

}  // namespace lockstep
