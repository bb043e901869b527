#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/device/device.hpp"

namespace lockstep {

enum class GpuElement : std::uint8_t { f32, f64 };

/// Collectives among the ranks' GPUs, from device memory to device memory, by NCCL. Every rank calls the same ones in the
/// same order. Sums are added in NCCL's order: the same bits on every rank, but not for every number of ranks.
///
/// A collective begins when `stream` has done what it was given so far, and runs on a stream of its own, after the
/// collectives before it, while `stream` goes on; after join() the stream waits for all of them. No call waits for a GPU
/// but wait(). `what` is kept, for messages. Work that a Graph holds must be forgotten before this ends.
class GpuReduce {
 public:
  virtual ~GpuReduce() = default;
  /// out = sum over ranks of in. out may be in.
  virtual void all_reduce(const Stream& stream, void* out, const void* in, std::int64_t count, GpuElement element,
                          const char* what) = 0;
  /// out = in of rank 0, of rank 1, ...: each of the same size.
  virtual void all_gather(const Stream& stream, void* out, const void* in, std::size_t size_bytes,
                          const char* what) = 0;
  /// to[r] goes to rank r, and what rank r sends here comes into from[r], which has its size.
  virtual void exchange(const Stream& stream, std::span<const std::span<std::byte>> from,
                        std::span<const std::span<const std::byte>> to, const char* what) = 0;
  /// What `stream` is given from here on comes after all collectives. Ends a round of them.
  virtual void join(const Stream& stream) = 0;
  /// Waits until the stream has done all it was given. errors  Error when NCCL fails or the deadline passes: the step,
  /// the first collective of the round that has not ended, and NCCL's own words
  virtual void wait(const Stream& stream, std::int64_t step) = 0;
};

/// Whether every rank has a GPU of its own, which NCCL needs. Collective.
bool gpus_are_apart(Communicator& comm, Device device);

/// NCCL's communicator over all ranks; its id travels through `comm`. Collective. timeout_s: longest wait; 0: for ever.
/// errors  Error (usage) when two ranks share a GPU, or in a build without CUDA; Error (internal) when NCCL fails
std::unique_ptr<GpuReduce> make_gpu_reduce(Communicator& comm, Device device, double timeout_s);

}  // namespace lockstep
