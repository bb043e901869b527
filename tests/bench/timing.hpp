#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <functional>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/device/device.hpp"

namespace lockstep::bench {

/// Wall time, or the processor time of all threads of this process, which other processes hardly change.
enum class Clock : std::uint8_t { wall, processor };

inline double now_s(Clock clock) {
  timespec t{};
  clock_gettime(clock == Clock::wall ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// Seconds per call of a function that submits work to a stream: the median of nine windows, each of several calls and
/// one wait. All windows together take `seconds`.
inline double time_of(const Stream& stream, double seconds, const std::function<void()>& f, Clock clock = Clock::wall) {
  constexpr int kWindows = 9;
  const auto seconds_of = [&](int calls) {
    const double start = now_s(clock);
    for (int i = 0; i < calls; ++i) f();
    stream.synchronize();
    return now_s(clock) - start;
  };
  seconds_of(1);
  const double first = std::max(seconds_of(1), 2e-7);
  const int calls = std::clamp(static_cast<int>(seconds / kWindows / first), 1, 100000);
  std::vector<double> windows;
  for (int w = 0; w < kWindows; ++w) windows.push_back(seconds_of(calls) / calls);
  std::sort(windows.begin(), windows.end());
  return windows[kWindows / 2];
}

/// The main function of a benchmark: reads its options, then runs it. Returns the exit code.
inline int run(Options& options, int argc, char** argv, const std::function<void()>& benchmark) try {
  if (options.parse({argv + 1, argv + argc})) benchmark();
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
  return static_cast<int>(error.fault());
}

}  // namespace lockstep::bench
