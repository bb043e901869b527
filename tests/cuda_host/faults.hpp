#pragma once

/// Signals that the processor sends: a kernel's become a fault of that kernel, device memory opens to whom it is granted,
/// and the host is told when it touches device memory. What concerns neither goes to the handler that was there before.
namespace cuda_host {

/// Makes the handlers current again if somebody has installed others since.
void install_fault_handlers();

/// Gives the calling thread a stack for handlers, which a fiber that has used up its own needs.
void use_signal_stack();

}  // namespace cuda_host
