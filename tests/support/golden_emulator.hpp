#pragma once
#include <string>
#include <vector>

#include "lockstep/models/emulator_files.hpp"

namespace lockstep::test {

/// tests/golden/<name>: an emulator with the weights and moments that PyTorch had, and names, units, levels and a mask made up for it.
TrainedEmulator golden_emulator(const std::string& name, DType dtype = DType::f32);
/// The golden files of networks, one per activation and shape.
const std::vector<std::string>& golden_emulators();

}  // namespace lockstep::test
