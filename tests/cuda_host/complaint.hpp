#pragma once
#include <string>

#include "lockstep/base/error.hpp"
#include "lockstep/device/cuda_launch.hpp"

/// The message of work on a stream of cuda:0, or of the wait for it; empty if both succeed.
template <class Work>
std::string complaint(const Work& work) {
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
