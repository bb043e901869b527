#pragma once
#include <cstddef>
#include <span>
#include <string>

/// Information about kernels from the symbol tables of the running program.
namespace cuda_host {

/// The function that contains the address, with its template arguments but without its parameters; the address if
/// unknown.
std::string function_name(const void* address);

/// The location of an instruction: ", in attention_kernel<float>(...)+0x1f4 of build/bin/test_ops".
std::string at(const void* instruction);

/// The calling thread's copies of the `__shared__` variables that a kernel may use: its own, and those of device
/// functions. Fixed for the kernel and the thread.
std::span<const std::span<std::byte>> shared_variables(const void* kernel);
/// The size of the kernel's own ones.
std::size_t own_shared_bytes(const void* kernel);

}  // namespace cuda_host
