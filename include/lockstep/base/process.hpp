#pragma once
#include <cstdint>
#include <string>

namespace lockstep {

/// The state of a process as its host knows it.
enum class Process : std::uint8_t { running, stopped, dead, unknown };

/// What /proc says about the process: dead also when the number now belongs to another one or is a zombie's.
Process process_state(std::int64_t pid, std::int64_t started);
/// Field 22 of /proc/PID/stat, 0 when it cannot be read.
std::int64_t process_started(std::int64_t pid);
/// The name of this machine; "localhost" when it does not tell.
std::string host_name();
/// "2026-11-20 18:30:59": the time where this machine is.
std::string local_time();

}  // namespace lockstep
