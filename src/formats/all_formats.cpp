#include "files.hpp"
#include "lockstep/io/atomic_file.hpp"

/// Functions that need HDF5 or a writer. A liblockstep without HDF5 does not link this file.
namespace lockstep {

void write_emulator(const std::filesystem::path& path, EmulatorFormat format, const Emulator& network,
                    const EmulatorMetadata& metadata) {
  switch (format) {
    case EmulatorFormat::h5model:
      return files::write_h5model(path, network, metadata);
    case EmulatorFormat::lsem:
      return write_text_atomically(path, files::lsem_bytes(network, metadata));
    case EmulatorFormat::onnx:
      return write_text_atomically(path, files::onnx_bytes(network, metadata));
    case EmulatorFormat::torchscript:
      return write_text_atomically(path, files::torchscript_bytes(network, metadata));
    case EmulatorFormat::safetensors:
      return write_text_atomically(path, files::safetensors_bytes(network, metadata));
  }
}

TrainedEmulator read_emulator(const std::filesystem::path& path, EmulatorSelfTest* selftest, EmulatorWeights weights) {
  const std::string bytes = read_model_bytes(path);
  if (bytes.starts_with(files::kHdf5Magic)) {
    return files::read_checked(path.string(), selftest,
                               [&](EmulatorSelfTest& test) { return files::read_h5model(path, test, weights); });
  }
  return files::read_flat(bytes, path.string(), std::filesystem::absolute(path).parent_path(), selftest);
}

}  // namespace lockstep
