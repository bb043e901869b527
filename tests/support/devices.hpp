#pragma once
#include <vector>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep::test {

/// The CPU, and the first GPU where there is one.
inline std::vector<Device> devices() {
  std::vector<Device> all = {Device{}};
  if (gpu_count() > 0) all.push_back({DeviceKind::cuda, 0});
  return all;
}

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
