#pragma once
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

}  // namespace lockstep::test
