#pragma once
#include <string>

#include "lockstep/base/error.hpp"

namespace lockstep {

/// The most memory that the processes of this job can have on this machine.
struct MemoryLimit {
  double bytes = 0;
  std::string source;  ///< "this machine has", "its control group allows" or "ulimit -v allows"
};

/// The least of: the physical memory, the limits of the process's control group (v2 and v1) and RLIMIT_AS, which is a
/// limit of one process.
MemoryLimit memory_limit();
/// Checks that this machine has memory for a computation before it starts.
/// what    "making the rows: 1000 rows need"; advice: "lower rows"
/// units   bytes
/// errors  Error (usage): they exceed memory_limit(); names both sizes
void require_memory_for(double bytes, const std::string& what, const std::string& advice);
/// The error of an allocation that the system refuses: usage if `ulimit -v` is the reason, else internal.
/// what    "allocating 3.0 MiB of host memory"; "": unknown
Error out_of_memory(const std::string& what, const std::string& advice);

}  // namespace lockstep
