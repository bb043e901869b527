#pragma once
#include <algorithm>
#include <functional>
#include <vector>

#include "lockstep/base/stopwatch.hpp"
#include "lockstep/device/device.hpp"

namespace lockstep::bench {

/// Seconds per call of a function that submits work to a stream: the median of nine windows of wall time, each of
/// several calls and one wait. All windows together take `seconds`.
inline double time_of(const Stream& stream, double seconds, const std::function<void()>& f) {
  constexpr int kWindows = 9;
  f();
  stream.synchronize();
  const Stopwatch first;
  f();
  stream.synchronize();
  const int calls = std::clamp(static_cast<int>(seconds / kWindows / std::max(first.seconds(), 1e-6)), 1, 1000);
  std::vector<double> windows;
  for (int w = 0; w < kWindows; ++w) {
    const Stopwatch watch;
    for (int i = 0; i < calls; ++i) f();
    stream.synchronize();
    windows.push_back(watch.seconds() / calls);
  }
  std::sort(windows.begin(), windows.end());
  return windows[kWindows / 2];
}

}  // namespace lockstep::bench
