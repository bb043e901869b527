// Writes model files of every format, for the programs under tests that read them: from the golden emulators; and of
// other networks, with the inputs of some samples (NAME.input0, ...) and their scores by the network itself
// (NAME.scores).
//
//   make_models DIRECTORY
#include <cstdio>
#include <exception>
#include <filesystem>

#include "lockstep/formats/network_onnx.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "support/golden_emulator.hpp"
#include "support/weight_files.hpp"

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
  for (const auto& [name, file] : test::network_files()) {
    const test::NetworkCase samples = test::make_case(*test::function_of(file), 25);
    for (std::size_t i = 0; i < samples.inputs.size(); ++i)
      write_text_atomically(directory / join(name, ".input", i), samples.inputs[i]);
    write_text_atomically(directory / (name + ".scores"), samples.outputs[0]);
    write_text_atomically(directory / (name + ".safetensors"), safetensors_bytes(file));
    const bool har = name.starts_with("har");
    if (name.find("tisasrec") == std::string::npos && !name.ends_with("mhc") && name != "bprmf")
      write_text_atomically(directory / (name + ".onnx"), (har ? har_onnx : sasrec_onnx)(file, name));
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
