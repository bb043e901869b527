#pragma once
#include <cstdint>
#include <string>

namespace lockstep {

/// The state of a process as its host reports it.
enum class Process : std::uint8_t { running, stopped, dead, unknown };

/// The state of a process according to /proc. It is dead if it is a zombie, or if its start time is not `started`,
/// because another process has its number now. Unknown if `started` is 0.
Process process_state(std::int64_t pid, std::int64_t started);
/// Start time in clock ticks since boot (field 22 of /proc/PID/stat); 0 if it cannot be read.
std::int64_t process_started(std::int64_t pid);
/// Peak resident memory of this process. Units: bytes.
double peak_memory_bytes();
/// The host name of this machine; "localhost" if it cannot be read.
std::string host_name();
/// The current local time: "2026-11-20 18:30:59".
std::string local_time();

}  // namespace lockstep
