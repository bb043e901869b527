#include "lockstep/base/memory_limit.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep {

namespace {
namespace fs = std::filesystem;

/// The limit that a file of the control group states, or 0: there is none, or the file says "max".
double stated_limit(const fs::path& file) {
  double bytes = 0;
  return std::ifstream(file) >> bytes ? bytes : 0;
}

/// The smallest limit of a group and the groups around it, or 0.
double group_limit(const fs::path& root, fs::path group, const char* file) {
  double least = 0;
  for (;; group = group.parent_path()) {
    const double bytes = stated_limit(root / group.relative_path() / file);
    if (bytes > 0 && (least == 0 || bytes < least)) least = bytes;
    if (group == group.parent_path()) return least;
  }
}

constexpr const char* kProcessLimit = "ulimit -v allows";

/// That of all processes: it does not change.
MemoryLimit limit_of_machine() {
  MemoryLimit limit = {static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGE_SIZE)),
                       "this machine has"};
  const auto lower = [&](double bytes) {
    if (bytes > 0 && bytes < limit.bytes) limit = {bytes, "its control group allows"};
  };
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // number:controllers:/path
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (controllers.empty()) lower(group_limit("/sys/fs/cgroup", path, "memory.max"));
    if (controllers.find("memory") != std::string::npos)
      lower(group_limit("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes"));
  }
  return limit;
}
}  // namespace

MemoryLimit memory_limit() {
  static const MemoryLimit machine = limit_of_machine();
  rlimit space{};
  const bool limited = ::getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY;
  const auto bytes = static_cast<double>(space.rlim_cur);
  return limited && bytes < machine.bytes ? MemoryLimit{bytes, kProcessLimit} : machine;
}

void require_memory_for(double bytes, const std::string& what, const std::string& advice) {
  const MemoryLimit limit = memory_limit();
  require_usage(bytes <= limit.bytes, what, " ", human_bytes(bytes), ", but ", limit.source, " ",
                human_bytes(limit.bytes), "; ", advice);
}

Error out_of_memory(const std::string& what, const std::string& advice) {
  const MemoryLimit limit = memory_limit();
  return {limit.source == kProcessLimit ? Fault::usage : Fault::internal,
          join(what, what.empty() ? "" : ": ", "out of memory, ", limit.source, " ", human_bytes(limit.bytes),
               " in all; ", advice)};
}

}  // namespace lockstep
