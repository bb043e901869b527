#pragma once
#include <cstdint>
#include <vector>

#include "lockstep/models/emulator.hpp"

namespace lockstep::test {

/// An emulator with random weights, biases and moments; inputs have means around 10 and standard deviations between 0.1 and 50.
Emulator random_emulator(const EmulatorArch& arch, DType dtype = DType::f64, std::uint64_t seed = 1);
/// Physical states (n, n_in) around the emulator's means.
std::vector<double> random_states(const Emulator& emulator, std::int64_t n, std::uint64_t seed = 2);
/// N(0, 1).
std::vector<double> random_values(std::int64_t n, std::uint64_t seed);

}  // namespace lockstep::test
