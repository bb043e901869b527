#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

#include "lockstep/data/emulator_data.hpp"

namespace lockstep::test {

/// The contents of a small prepared data set, to be written as it is or with something spoilt.
struct EmulatorContents {
  std::int64_t n = 0, n_in = 0, n_out = 0;
  std::vector<float> x, y;
  std::vector<double> jacobian;  ///< empty: none
  std::vector<std::uint8_t> split;
  Moments moments;
  EmulatorVariables variables;
};
/// y_o = sum_i c_oi tanh(x_i), with its exact Jacobian; every fifth row validation, every tenth test. The first output is called aice.
EmulatorContents emulator_contents(std::int64_t n, std::int64_t n_in, std::int64_t n_out, std::uint64_t seed = 1);
void write_emulator_data(const std::filesystem::path& path, const EmulatorContents& contents);

}  // namespace lockstep::test
