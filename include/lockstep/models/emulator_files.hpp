#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "lockstep/models/emulator.hpp"

namespace lockstep {

/// Why a model file was refused; the Fault is usage for unreadable files and formats for others, else data.
enum class ModelFileReason : std::uint8_t {
  unreadable,  ///< missing, or the system refuses to read it
  format,      ///< not a model file, of a newer version, or of a format that is not read back
  damaged,     ///< a wrong checksum, or contents that contradict each other
  selftest,    ///< the network does not reproduce the rows that the file carries
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

/// The files in which a trained emulator leaves the trainer. docs/model-files.md describes each byte by byte.
enum class EmulatorFormat : std::uint8_t {
  h5model,      ///< HDF5, self-describing; read back
  lsem,         ///< one flat file that needs no library to read; read back
  onnx,         ///< ONNX, opset 13: x (n, n_in) -> y (n, n_out), physical units
  torchscript,  ///< an archive for torch::jit::load: predict, forward, jac_physical
  safetensors,  ///< named tensors, the description as metadata; read back
};
const char* name(EmulatorFormat format);
/// errors  usage: an unknown name (naming the nearest)
EmulatorFormat emulator_format(const std::string& name);

/// An emulator with all that is needed to use it without its training data.
struct TrainedEmulator {
  Emulator network;
  EmulatorCard card;
};

/// Rows on which a model file states what its network gives, in physical units and in double precision.
struct EmulatorSelfTest {
  std::int64_t rows = 0;
  std::vector<double> x;  ///< (rows, n_in)
  std::vector<double> y;  ///< (rows, n_out)
  std::vector<double> j;  ///< (rows, n_out, n_in), dy/dx
};
/// Four states within one standard deviation of the mean, and what the double path gives for them.
EmulatorSelfTest make_selftest(const Emulator& network);
/// Recomputes the rows in double and in single precision. Deviations are counted in normalised units.
/// errors  data, naming `source`: a shape that does not fit; a deviation above 1e-9 (double) or 1e-3 (single) of the largest value
void check_selftest(const Emulator& network, const EmulatorSelfTest& selftest, const std::string& source);

/// Writes the model file, whole or not at all. Weights keep the network's dtype; normalisation stays f64 where the format allows.
/// errors  internal: what the file system says; data: weights or moments that are not finite
void write_emulator(const std::filesystem::path& path, EmulatorFormat format, const Emulator& network,
                    const EmulatorCard& card);

/// Opens a model file of any format that can be read back, told by its first bytes; verifies its checksum and its self-test.
/// errors  ModelFileError: usage for a file that is missing, unreadable or for other programs (ONNX, TorchScript);
///         data for one that is damaged, truncated, foreign or of a newer version, and for a failed self-test
TrainedEmulator read_emulator(const std::filesystem::path& path, EmulatorSelfTest* selftest = nullptr);
/// The same from memory (.lsem, safetensors); `source` names it in messages.
TrainedEmulator read_emulator(std::span<const std::byte> bytes, const std::string& source,
                              EmulatorSelfTest* selftest = nullptr);

}  // namespace lockstep
