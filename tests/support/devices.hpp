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

/// During its lifetime the host build of the kernels (docs/cuda-host.md) runs blocks, and in each block threads, in this
/// order: "forward" or "reverse". A result that changes depends on an unspecified order. A GPU ignores it.
class BlockOrder {
 public:
  explicit BlockOrder(const char* order) {
    if (const char* old = std::getenv(kVariable)) before_ = old;
    setenv(kVariable, order, 1);
  }
  BlockOrder(const BlockOrder&) = delete;
  BlockOrder& operator=(const BlockOrder&) = delete;
  ~BlockOrder() { setenv(kVariable, before_.c_str(), 1); }

 private:
  static constexpr const char* kVariable = "LOCKSTEP_CUDA_HOST_ORDER";
  std::string before_;
};
class LastFirst : BlockOrder {
 public:
  LastFirst() : BlockOrder("reverse") {}
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
