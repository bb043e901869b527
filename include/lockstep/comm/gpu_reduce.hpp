#pragma once
#include <cstdint>
#include <memory>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/device/device.hpp"

namespace lockstep {

enum class GpuElement : std::uint8_t { f32, f64 };

/// Sums over the ranks' GPUs, from device memory to device memory, by NCCL. Every rank calls the same sums in the same
/// order. The order of additions is NCCL's: the same bits on every rank, but not for every number of ranks.
class GpuReduce {
 public:
  virtual ~GpuReduce() = default;
  /// out = sum over ranks of in, in the order of the stream; returns before it is done. out may be in.
  virtual void all_reduce(const Stream& stream, void* out, const void* in, std::int64_t count, GpuElement element,
                          const char* what) = 0;
  /// Waits until the stream has done all it was given. errors  Error when NCCL fails or the deadline passes: what was
  /// under way, and NCCL's own words
  virtual void wait(const Stream& stream) = 0;
};

/// Whether every rank has a GPU of its own, which NCCL needs. Collective.
bool gpus_are_apart(Communicator& comm, Device device);

/// NCCL's communicator over all ranks; its id travels through `comm`. Collective. timeout_s: longest wait; 0: for ever.
/// errors  Error (usage) when two ranks share a GPU, or in a build without CUDA; Error (internal) when NCCL fails
std::unique_ptr<GpuReduce> make_gpu_reduce(Communicator& comm, Device device, double timeout_s);

}  // namespace lockstep
