#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/models/emulator/emulator.hpp"
#include "lockstep/models/emulator/emulator_metadata.hpp"

namespace lockstep {

/// Why a model file was refused. The Fault is usage if the file is unreadable or written for other programs, else data.
enum class ModelFileReason : std::uint8_t {
  unreadable,  ///< missing, or not readable
  format,      ///< not a model file, a newer version, or a write-only format
  damaged,     ///< a wrong checksum, or inconsistent contents
  selftest,    ///< the network does not reproduce the file's self-test rows
};
class ModelFileError : public Error {
 public:
  ModelFileError(ModelFileReason reason, Fault fault, const std::string& message,
                 std::source_location where = std::source_location::current())
      : Error(fault, message, where), reason_(reason) {}
  ModelFileReason reason() const { return reason_; }

 private:
  ModelFileReason reason_;
};

/// Export formats of a trained emulator. docs/model-files.md describes each byte by byte.
enum class EmulatorFormat : std::uint8_t {
  h5model,      ///< HDF5, self-describing; readable
  lsem,         ///< one flat file that needs no library; readable
  onnx,         ///< ONNX, opset 13: x (n, n_in) -> y (n, n_out), physical units; readable
  torchscript,  ///< archive for torch::jit::load with predict, forward and jac_physical; write-only
  safetensors,  ///< named tensors, with the description in the metadata; readable
};
constexpr auto names_of(EmulatorFormat) { return std::array{"h5model", "lsem", "onnx", "torchscript", "safetensors"}; }

/// Which weights of a training checkpoint to read.
enum class EmulatorWeights : std::uint8_t {
  automatic,  ///< the moving average if there is one
  trained,
  average,
};

/// An emulator with everything needed to use it without its training data.
struct TrainedEmulator {
  Emulator network;
  EmulatorMetadata metadata;
};

/// Rows with the network's expected predictions and Jacobians, stored in a model file. Physical units.
struct EmulatorSelfTest {
  std::int64_t rows = 0;
  std::vector<double> x;  ///< (rows, n_in)
  std::vector<double> y;  ///< (rows, n_out)
  std::vector<double> j;  ///< (rows, n_out, n_in), dy/dx
};
/// Makes four states within one standard deviation of the mean, with double-precision results.
EmulatorSelfTest make_selftest(const Emulator& network);
/// Recomputes the rows in double and in single precision. Deviations are in normalised units.
/// errors  data, naming `source`: shapes that do not fit; a deviation above 1e-9 (double) or 1e-3 (single) of the
///         largest value
void check_selftest(const Emulator& network, const EmulatorSelfTest& selftest, const std::string& source);

/// Writes a model file atomically. Weights keep the network's dtype; moments stay f64 where the format allows.
/// errors  internal: a file-system error; data: weights or moments that are not finite
void write_emulator(const std::filesystem::path& path, EmulatorFormat format, const Emulator& network,
                    const EmulatorMetadata& metadata);

/// The architecture and columns in the metadata of a safetensors file; its moments are arrays. None: another program
/// has written the file. errors  data, naming `source`: a missing or malformed entry
std::optional<EmulatorDescription> described_emulator(const std::map<std::string, std::string>& metadata,
                                                      const std::string& source);

/// Opens a model file of any readable format, recognised by its first bytes, and verifies its checksum and self-test.
/// errors  ModelFileError: usage for a file that is missing or unreadable, or a network that is no emulator (ONNX,
///         TorchScript); data for a file that is damaged, truncated, foreign or of a newer version, and for a failed
///         self-test
TrainedEmulator read_emulator(const std::filesystem::path& path, EmulatorSelfTest* selftest = nullptr,
                              EmulatorWeights weights = EmulatorWeights::automatic);
/// The contents of a model file. errors  ModelFileError (usage): missing, or not a readable regular file
std::string read_model_bytes(const std::filesystem::path& path);
/// read_emulator() for programs that do not link HDF5: .lsem, safetensors, ONNX and TorchScript. errors  also
/// ModelFileError (usage): HDF5
TrainedEmulator read_flat_emulator(const std::filesystem::path& path, EmulatorSelfTest* selftest = nullptr);
/// Reads the bytes of an .lsem, safetensors, ONNX or TorchScript file, named `source` in messages. errors  as above
TrainedEmulator read_emulator(std::span<const std::byte> bytes, const std::string& source,
                              EmulatorSelfTest* selftest = nullptr);

}  // namespace lockstep
