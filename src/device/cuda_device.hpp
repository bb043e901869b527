#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/device/device.hpp"

/// What device.hpp needs of the CUDA runtime, without its headers. Defined only where kHasCuda.
namespace lockstep::gpu {

int count();
std::string describe(int index);
std::string address(int index);

/// The GPU's one main stream, made by the first call. Makes `device` the calling thread's GPU.
void* main_stream(int device);
void synchronize(void* stream);
/// Waits for all streams of the calling thread's GPU.
void synchronize_device();
/// The runtime finds out which side lies where.
void copy(void* stream, void* to, const void* from, std::size_t size_bytes);
void zero(void* stream, void* memory, std::size_t size_bytes);

/// Zeroed. errors  OutOfMemory
std::byte* allocate(int device, std::size_t size_bytes, MemoryUse use);
void free_and_total(int device, std::size_t& free, std::size_t& total);
std::byte* allocate_pinned(std::size_t size_bytes);
void free(std::byte* memory);
void free_pinned(std::byte* memory);
/// How often either has been called in this process.
std::uint64_t frees();

/// Notes what the stream is given from here on, by the calling thread, instead of running it.
void begin_capture(void* stream);
/// The end of it: `executable`, null at first, becomes the graph of what was noted, or is made anew.
/// errors  Error when something cannot be in a graph; the stream runs again in any case
void end_capture(void* stream, void*& executable);
void launch_graph(void* executable, void* stream);
void destroy_graph(void* executable);

}  // namespace lockstep::gpu
