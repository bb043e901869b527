#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/device/device.hpp"
#include "lockstep/device/ledger.hpp"

/// The CUDA runtime calls of device.hpp, without the runtime's headers. Defined only where kHasCuda.
namespace lockstep::gpu {

int count();
std::string why_none();
std::string describe(int index);
std::string address(int index);
std::string uuid(int index);

/// Runs an empty kernel.
void try_out(const Stream& stream);

/// The GPU that is current for the calling thread.
int current();
void make_current(int device);
/// The same at the end of an object's life: errors are ignored.
void restore_current(int device);

/// The main stream of the GPU; the first call creates it. Makes `device` current for the calling thread.
void* main_stream(int device);
void synchronize(void* stream);
/// Waits for all streams of the current GPU.
void synchronize_device();
/// Copies between host and GPU, or within either; the runtime determines the direction.
void copy(void* stream, void* to, const void* from, std::size_t size_bytes);
void zero(void* stream, void* memory, std::size_t size_bytes);

/// Allocates zeroed memory. errors  OutOfMemory
std::byte* allocate(int device, std::size_t size_bytes, MemoryUse use);
void free_and_total(int device, std::size_t& free, std::size_t& total);
std::byte* allocate_pinned(std::size_t size_bytes);
void free(std::byte* memory);
void free_pinned(std::byte* memory);
bool is_gpu_memory(const void* p);
/// How often the calling thread's scratch memory (cuda_scratch.hpp) has moved.
std::uint64_t scratch_moves();

void* make_event(int device, bool timed);
void destroy_event(void* event);
void record_event(void* event, void* stream);
bool event_passed(void* event);
void wait_for_event(void* event);
double seconds_between(void* first, void* last);

/// Captures work that the calling thread enqueues on the stream from here on, instead of running it.
void begin_capture(void* stream);
/// Ends the capture and returns its graph, ready for launches.
/// errors   Error if the work cannot be captured; the stream is usable again in any case
void* end_capture(void* stream);
void launch_graph(void* executable, void* stream);
void destroy_graph(void* executable);

/// See ledger.hpp.
std::string why_no_ledger();
void start_ledger();
Ledger finish_ledger();

/// Makes each recorded span of profile.hpp a range of NVTX.
void mirror_spans();

}  // namespace lockstep::gpu
