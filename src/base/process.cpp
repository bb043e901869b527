#include "lockstep/base/process.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <fstream>

#include "lockstep/base/error.hpp"

namespace lockstep {

namespace {
struct ProcStat {
  char state = '?';
  std::int64_t started = 0;
};
/// Returns false if there is no such process, or no /proc.
bool read_stat(std::int64_t pid, ProcStat& stat) {
  std::ifstream file(join("/proc/", pid, "/stat"));
  std::string line;
  if (!std::getline(file, line)) return false;
  // Field 2, the name, is in parentheses and may contain any character: count fields from the last parenthesis.
  const std::size_t end = line.rfind(')');
  if (end == std::string::npos || end + 2 >= line.size()) return false;
  stat.state = line[end + 2];
  std::size_t at = end + 2;
  for (int field = 3; field < 22 && at != std::string::npos; ++field) at = line.find(' ', at + 1);
  if (at != std::string::npos) stat.started = std::strtoll(line.c_str() + at, nullptr, 10);
  return true;
}
}  // namespace

std::int64_t process_started(std::int64_t pid) {
  ProcStat stat;
  return read_stat(pid, stat) ? stat.started : 0;
}

double peak_memory_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

std::string host_name() {
  char name[256] = "localhost";
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::string local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

Process process_state(std::int64_t pid, std::int64_t started) {
  if (started == 0) return Process::unknown;
  ProcStat stat;
  if (!read_stat(pid, stat)) return Process::dead;
  if (stat.started != started || stat.state == 'Z' || stat.state == 'X') return Process::dead;
  return stat.state == 'T' || stat.state == 't' ? Process::stopped : Process::running;
}

}  // namespace lockstep
