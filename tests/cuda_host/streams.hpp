#pragma once
#include <functional>

#include "cuda_runtime.h"
#include "ordering.hpp"

/// Streams run submitted work at once. With LOCKSTEP_CUDA_HOST_STREAMS=late they run it as late as a GPU may: when the
/// host waits for the stream or for one of its events. This detects a host that reads results or reuses inputs too
/// early. A stream that is being captured only records its work.
namespace cuda_host {

/// Whether streams run late, from LOCKSTEP_CUDA_HOST_STREAMS or the latest run_streams_late().
bool streams_run_late();
void run_streams_late(bool late);

using Work = std::function<void()>;
/// Work that may have to wait for others, such as that of a library for several devices. Each call advances it as far
/// as possible without waiting, and returns whether it is complete.
using Progress = std::function<bool()>;

/// Submits work to a stream; null is the default stream of the calling thread's device.
///
/// errors   Failure of the work itself, if it runs at once, or of the order in which memory is used
void submit(cudaStream_t stream, Uses uses, Work work);
/// Submits work that may wait. `begin` is called when the work starts, and again for each launch of a graph.
void submit_lasting(cudaStream_t stream, Uses uses, std::function<Progress()> begin);
/// Lets simulated time pass on a stream, for cudaEventElapsedTime(). Call it in the stream's work. Other work takes
/// none.
void pass_time(cudaStream_t stream, double ms);
/// Advances all streams that this thread can lock. For callers that wait for something other than a stream.
void advance_all();
/// Advances the device's streams, also those that run late.
void advance_device(int device);
/// Waits for all work of the device's streams.
///
/// errors   Failure of the work
void drain_device(int device);
/// Waits for all work of the device's streams, but leaves failures for the next query of the stream.
void settle(int device);
/// With LOCKSTEP_CUDA_HOST_MEMORY_WAITS, unless streams run late: waits for the work of all other devices of this
/// process, as the memory calls of GPUs may.
void settle_others(int device);
/// The device of a stream.
int device_of(cudaStream_t stream);
bool is_capturing(cudaStream_t stream);
/// A stream's number in messages.
std::string name(cudaStream_t stream);

/// The version of the simulated driver: that of the runtime, or LOCKSTEP_CUDA_HOST_DRIVER; 0: there is none.
inline constexpr int kRuntimeVersion = 13000;
int driver_version();

/// The calling thread's device.
int current_device();
/// The host's number of a device of this process, which differs where CUDA_VISIBLE_DEVICES hides some.
int number_on_host(int device);

/// Call in functions that wait for a device or change memory, which a graph cannot contain.
///
/// errors   Failure (cudaErrorStreamCaptureUnsupported) if the calling thread captures a stream
void refuse_while_capturing(const char* doing);

}  // namespace cuda_host
