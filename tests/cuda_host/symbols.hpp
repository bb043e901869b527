#pragma once
#include <cstddef>
#include <span>
#include <string>

/// What the symbol tables of the running program tell about kernels.
namespace cuda_host {

/// The function that holds the address, with its template arguments but without its parameters; the address if unknown.
std::string function_name(const void* address);

/// ", in attention_kernel<float>(...)+0x1f4 of build/bin/test_ops": where an instruction stands.
std::string at(const void* instruction);

/// The calling thread's copies of the `__shared__` variables that a kernel may use: its own, and those of device functions.
/// Fixed for the kernel and the thread.
std::span<const std::span<std::byte>> shared_variables(const void* kernel);

}  // namespace cuda_host
