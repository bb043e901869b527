#pragma once
#include <string>

#include "lockstep/base/error.hpp"
#include "lockstep/device/cuda_launch.hpp"

/// While it lives, kernels that wait for earlier work may start early, or not.
class EarlyStarts {
 public:
  explicit EarlyStarts(bool wanted) { lockstep::gpu::let_kernels_start_early(wanted); }
  EarlyStarts(const EarlyStarts&) = delete;
  EarlyStarts& operator=(const EarlyStarts&) = delete;
  ~EarlyStarts() { lockstep::gpu::let_kernels_start_early(before_); }

 private:
  bool before_ = lockstep::gpu::kernels_start_early();
};

/// The message of work on a stream of cuda:0, or of the wait for it; empty if both succeed.
std::string complaint(const auto& work) {
  const lockstep::Stream stream({lockstep::DeviceKind::cuda, 0});
  try {
    work(stream);
    stream.synchronize();
    return {};
  } catch (const lockstep::Error& e) {
    return e.what();
  }
}
/// The same of a launch.
template <class... Params, class... Args>
std::string complaint_of(const lockstep::gpu::Grid& grid, void (*kernel)(Params...), Args... args) {
  return complaint([&](const lockstep::Stream& stream) { lockstep::gpu::launch(stream, grid, kernel, args...); });
}
