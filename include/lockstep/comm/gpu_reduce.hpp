#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/device/device.hpp"
#include "lockstep/device/event.hpp"

namespace lockstep {

enum class GpuElement : std::uint8_t { f32, f64 };

/// NCCL collectives between the GPUs of the ranks, from device memory to device memory. Every rank calls the same
/// collectives in the same order. NCCL determines the order of summation: every rank receives the same bits, which
/// depend on the number of ranks.
///
/// A collective starts after the work enqueued on `stream` so far. It runs on a separate stream, after the preceding
/// collectives, while `stream` continues; join() makes a stream wait for all of them. Only wait() blocks the CPU.
/// `what` must outlive the object, which uses it in messages. Graphs that contain the collectives must be cleared
/// before the object is destroyed.
class GpuReduce {
 public:
  virtual ~GpuReduce() = default;
  /// out = sum over ranks of in. `out` may equal `in`.
  virtual void all_reduce(const Stream& stream, void* out, const void* in, std::int64_t count, GpuElement element,
                          const char* what) = 0;
  /// out = in of rank 0, in of rank 1, ...; all of the same size.
  virtual void all_gather(const Stream& stream, void* out, const void* in, std::size_t size_bytes,
                          const char* what) = 0;
  /// Sends to[r] to rank r and receives from rank r into from[r], which has exactly the size that rank r sends.
  virtual void exchange(const Stream& stream, std::span<const std::span<std::byte>> from,
                        std::span<const std::span<const std::byte>> to, const char* what) = 0;
  /// Makes later work of `stream` wait for all collectives so far. Ends a round of collectives.
  virtual void join(const Stream& stream) = 0;
  /// Waits until the work of `stream` is complete.
  /// errors   Error with the step, the first incomplete collective of the round and NCCL's text, if NCCL fails or the
  ///          deadline passes
  virtual void wait(const Stream& stream, std::int64_t step) = 0;
  /// Waits until the GPU has passed `event`, recorded in this step; later steps may already run. Errors as above.
  virtual void wait(const Event& event, std::int64_t step) = 0;
};

/// Whether every rank has its own GPU, as NCCL requires. Collective.
bool gpus_are_apart(Communicator& comm, Device device);

/// Creates an NCCL communicator over all ranks; its id travels through `comm`. Collective. timeout_s is the longest
/// wait; 0 waits forever.
/// errors   Error (usage) if two ranks share a GPU, or in a build without CUDA; Error (internal) if NCCL fails
std::unique_ptr<GpuReduce> make_gpu_reduce(Communicator& comm, Device device, double timeout_s);
/// The same without the check of the GPUs. Defined only where kHasCuda.
std::unique_ptr<GpuReduce> make_nccl_reduce(Communicator& comm, Device device, double timeout_s);

}  // namespace lockstep
