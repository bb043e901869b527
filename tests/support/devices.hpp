#pragma once
#include <cstdlib>
#include <string>
#include <vector>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep::test {

/// The CPU, and the first GPU if there is one.
inline std::vector<Device> devices() {
  std::vector<Device> all = {Device{}};
  if (gpu_count() > 0) all.push_back({DeviceKind::cuda, 0});
  return all;
}

/// Whether the GPU is the host build of the kernels (docs/cuda-host.md).
inline bool on_stand_in() { return gpu_count() > 0 && describe_gpu(0).find("stand-in") != std::string::npos; }

/// During its lifetime the host build of the kernels (docs/cuda-host.md) runs the last block first, and in each block
/// the last thread first: a result that changes depends on an unspecified order. A GPU ignores it.
class LastFirst {
 public:
  LastFirst() {
    if (const char* order = std::getenv(kVariable)) before_ = order;
    setenv(kVariable, "reverse", 1);
  }
  LastFirst(const LastFirst&) = delete;
  LastFirst& operator=(const LastFirst&) = delete;
  ~LastFirst() { setenv(kVariable, before_.c_str(), 1); }

 private:
  static constexpr const char* kVariable = "LOCKSTEP_CUDA_HOST_ORDER";
  std::string before_;
};

/// A copy on a device.
inline OwnedTensor on_device(const Tensor& t, Device device) {
  OwnedTensor there(t.dtype(), t.shape(), device);
  const Stream stream(device.is_cuda() ? device : t.device());
  copy(stream, there, t);
  stream.synchronize();
  return there;
}
inline OwnedTensor on_cpu(const Tensor& t) { return on_device(t, Device{}); }

}  // namespace lockstep::test
