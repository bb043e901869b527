#pragma once
#include <cstddef>
#include <cstdint>

#include "lockstep/device/device.hpp"

/// The CUDA runtime calls of device.cpp, without the runtime's headers. Defined only where kHasCuda.
namespace lockstep::gpu {

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

}  // namespace lockstep::gpu
