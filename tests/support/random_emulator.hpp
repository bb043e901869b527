#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "lockstep/models/emulator/emulator.hpp"

namespace lockstep::test {

/// An emulator with random weights, biases and moments: means from N(0, 10^2), standard deviations between 0.1 and 50.
Emulator random_emulator(const EmulatorArch& arch, DType dtype = DType::f64, std::uint64_t seed = 1);
/// Physical states (n, n_in) around the emulator's means.
std::vector<double> random_states(const Emulator& emulator, std::int64_t n, std::uint64_t seed = 2);
/// n values from N(0, 1).
std::vector<double> random_values(std::int64_t n, std::uint64_t seed);

/// max |a - b| / max |b| of the elements that are finite; infinite if the sizes differ, or if one of two elements is
/// finite and the other is not.
template <class A, class B>
double apart(const std::vector<A>& a, const std::vector<B>& b) {
  double worst = 0, largest = 1e-300;
  for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    if (a.size() != b.size() || std::isfinite(a[i]) != std::isfinite(b[i])) return HUGE_VAL;
    if (!std::isfinite(a[i])) continue;
    worst = std::max(worst, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    largest = std::max(largest, std::abs(static_cast<double>(b[i])));
  }
  return worst / largest;
}

}  // namespace lockstep::test
