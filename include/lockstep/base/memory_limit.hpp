#pragma once
#include <string>

namespace lockstep {

/// The most memory that the processes of this job can have on this machine.
struct MemoryLimit {
  double bytes = 0;
  std::string source;  ///< "this machine has", "its control group allows" or "ulimit -v allows"
};

/// The least of: the physical memory, the limits of the process's control group (v2 and v1) and RLIMIT_AS, which is a
/// limit of one process.
MemoryLimit memory_limit();

}  // namespace lockstep
