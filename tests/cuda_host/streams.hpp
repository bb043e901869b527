#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "cuda_runtime.h"
#include "ordering.hpp"

/// Streams do what they are given at once, unless LOCKSTEP_CUDA_HOST_STREAMS=late: then as late as a GPU may, when the
/// host waits for them or an event of theirs, so that a host that reads results or reuses inputs too early is found out.
/// A stream that is being captured only notes what it is given.
namespace cuda_host {

/// Whether streams run late: LOCKSTEP_CUDA_HOST_STREAMS, or what a test has asked for since.
bool streams_run_late();
void run_streams_late(bool late);

using Work = std::function<void()>;
/// Work that may have to wait for others, as that of a library for several devices: each call goes on as far as it can
/// without waiting, and says whether the end has been reached.
using Progress = std::function<bool()>;

/// Gives work to a stream; null is the default stream of the calling thread's device.
/// errors  Failure: of the work itself, if it runs at once; of the order in which memory is used
void submit(cudaStream_t stream, Uses uses, Work work);
/// The same for work that may wait; `begin` is called when its turn comes, and again for each launch of a graph.
void submit_lasting(cudaStream_t stream, Uses uses, std::function<Progress()> begin);
/// Lets all streams go on that this thread can have; for those who wait for something else than a stream.
void advance_all();
/// Waits for all that the device's streams were given. errors  Failure
void drain_device(int device);
/// The same, but failures stay for who asks for the stream.
void settle(int device);
/// The device that a stream belongs to.
int device_of(cudaStream_t stream);
bool is_capturing(cudaStream_t stream);
/// A stream's number in messages.
std::string name(cudaStream_t stream);

/// The calling thread's device.
int current_device();
/// The number that a device of this process has on its host, where CUDA_VISIBLE_DEVICES hides some.
int number_on_host(int device);

/// errors  Failure (cudaErrorStreamCaptureUnsupported) if the calling thread captures a stream: `doing` waits for a device
///         or changes memory, which has no place in a graph
void refuse_while_capturing(const char* doing);

}  // namespace cuda_host
