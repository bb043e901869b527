#pragma once
#include <cstddef>
#include <string>

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

/// Zeroed. errors  Error that names the size and what is free
std::byte* allocate(int device, std::size_t size_bytes);
std::byte* allocate_pinned(std::size_t size_bytes);
void free(std::byte* memory);
void free_pinned(std::byte* memory);

}  // namespace lockstep::gpu
