#pragma once
#include <string>
#include <vector>

#include "lockstep/formats/emulator_files.hpp"

namespace lockstep::test {

/// The emulator of tests/golden/<name>.h5: PyTorch's weights and moments, with synthetic names, units, levels and mask.
TrainedEmulator golden_emulator(const std::string& name, DType dtype = DType::f32);
/// Reads a model file; model_refusal() returns the message with which it is refused, or "read".
TrainedEmulator read_model(const std::string& bytes);
std::string model_refusal(const std::string& bytes);
/// Names of the golden files with a network, one per activation and shape.
const std::vector<std::string>& golden_emulators();

}  // namespace lockstep::test
