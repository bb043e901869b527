#include "lockstep/base/stopwatch.hpp"

#include <unistd.h>

#include <ctime>

#include "lockstep/base/process.hpp"

namespace lockstep {

double process_seconds() {
  static const std::int64_t ticks = process_started(::getpid());
  if (ticks == 0) return 0;
  const double started = static_cast<double>(ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) - started;
}

}  // namespace lockstep
