// Writes model files of every format from the golden emulators, for the programs under tests that read them.
//
//   make_models DIRECTORY
#include <cstdio>
#include <exception>
#include <filesystem>

#include "support/golden_emulator.hpp"

int main(int argc, char** argv) try {
  using namespace lockstep;
  require_usage(argc == 2, "usage: make_models DIRECTORY");
  const std::filesystem::path directory = argv[1];
  std::filesystem::create_directories(directory);
  for (const std::string& name : test::golden_emulators()) {
    const TrainedEmulator model = test::golden_emulator(name);
    for (const auto& [format, suffix] : {std::pair{EmulatorFormat::h5model, ".h5"},
                                         {EmulatorFormat::lsem, ".lsem"},
                                         {EmulatorFormat::onnx, ".onnx"},
                                         {EmulatorFormat::torchscript, ".ts"},
                                         {EmulatorFormat::safetensors, ".safetensors"}}) {
      write_emulator(directory / (name + suffix), format, model.network, model.metadata);
    }
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
