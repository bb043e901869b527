#pragma once

/// Signal handlers for memory faults. A fault in a kernel ends that kernel. An access to device memory by a kernel or
/// the runtime opens that memory. An access by host code prints an explanation before the program dies. All other
/// signals go to the handler that was installed before.
namespace cuda_host {

/// Installs the handlers again if other code has replaced them.
void install_fault_handlers();

/// Gives the calling thread a signal stack, needed when a fiber has used up its own stack.
void use_signal_stack();

}  // namespace cuda_host
