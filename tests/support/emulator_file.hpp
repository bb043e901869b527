#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

#include "lockstep/tasks/emulator/emulator_data.hpp"

namespace lockstep::test {

/// The contents of a small prepared data set, which a test writes unchanged or damaged.
struct EmulatorContents {
  std::int64_t n = 0, n_in = 0, n_out = 0;
  std::vector<float> x, y;
  std::vector<double> jacobian;  ///< empty: none
  std::vector<std::uint8_t> split;
  Moments moments;
  EmulatorVariables variables;
};
/// y_o = sum_i c_oi tanh(x_i), with its exact Jacobian. Every fifth row is a validation row, every tenth a test row.
/// The first output is called aice.
EmulatorContents emulator_contents(std::int64_t n, std::int64_t n_in, std::int64_t n_out, std::uint64_t seed = 1);
void write_emulator_data(const std::filesystem::path& path, const EmulatorContents& contents);
/// The contents as a task reads them from a file. The arrays live as long as the process.
EmulatorData read_data(const EmulatorContents& contents);

}  // namespace lockstep::test
