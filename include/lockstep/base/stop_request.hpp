#pragma once
#include <atomic>
#include <string>

#include "lockstep/base/error.hpp"
#include "lockstep/base/exit_codes.hpp"

namespace lockstep {

/// The number of the last signal that asked this process to stop, or 0. Signal handlers write it (train/signals.hpp).
inline std::atomic<int> stop_request = 0;
static_assert(std::atomic<int>::is_always_lock_free);

/// The name of a signal that asks a process to stop: "SIGTERM", "SIGUSR1", "SIGINT"; "" for any other number.
std::string signal_name(int signal);

/// Marks an Error that ends the program because a stop was requested; its value is the exit code, as for every Fault.
inline constexpr Fault kStopRequested{kExitInterrupted};

/// For long work outside the training loop; the loop reads stop_request itself.
/// errors  Error (kStopRequested) if a stop is requested
void require_no_stop_request(const char* doing);

}  // namespace lockstep
