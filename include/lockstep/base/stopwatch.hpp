#pragma once
#include <chrono>

namespace lockstep {

/// Monotonic wall time since construction or the last restart(). Units: seconds.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  /// Returns the seconds so far and starts again at zero.
  double restart() {
    const auto now = Clock::now();
    const double elapsed = std::chrono::duration<double>(now - start_).count();
    start_ = now;
    return elapsed;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

/// Wall seconds since this process was started, to 10 ms. 0 without /proc.
double process_seconds();

}  // namespace lockstep
