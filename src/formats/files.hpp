#pragma once
#include <bit>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/formats/emulator_files.hpp"
#include "lockstep/models/emulator/emulator_metadata.hpp"
#include "lockstep/models/weights.hpp"

/// Shared by the model file formats: an emulator as named tensors and text pairs, and the inverse.
namespace lockstep::files {

static_assert(std::endian::native == std::endian::little, "model files store numbers in memory order, little-endian");

constexpr const char* kFormat = "lockstep-emulator-model";
constexpr std::int64_t kVersion = 1;

/// The values of an array as bytes, in memory order.
std::string_view bytes_of(const NamedArray& array);

/// The weights in the order of the forward pass. errors  data: a weight or moment that is not finite
std::vector<NamedArray> weights_of(const Emulator& network);
/// The moments as tensors "<prefix>input_mean", ...
std::vector<NamedArray> moments_of(const Moments& moments, const std::string& prefix);
/// The self-test as tensors "selftest.x", "selftest.y", "selftest.J".
std::vector<NamedArray> selftest_of(const EmulatorSelfTest& selftest, const EmulatorArch& arch);

using Pairs = std::vector<std::pair<std::string, std::string>>;
/// Architecture, variables, mask and meta as text: "format", "version", "n_in", "input.0.name", "mask.min", "meta.KEY",
/// ...
Pairs describe(const EmulatorArch& arch, const EmulatorMetadata& metadata);
/// Parses describe()'s pairs; leaves the moments empty. errors  data, naming `source`: a missing or malformed entry,
/// another format, a newer version, extents out of range
EmulatorDescription parse_description(const Pairs& pairs, const std::string& source);

using Tensors = std::map<std::string, NamedArray>;
/// Makes a network from its parts. errors  data, naming `source`: a tensor that is missing, unknown, of a wrong shape
/// or dtype, or not finite
TrainedEmulator assemble(EmulatorDescription description, const Tensors& weights, const std::string& source);
/// Removes the f64 tensors of moments_of or selftest_of from `tensors` and returns their values.
/// errors  data, naming `source`: a tensor that is missing or of a wrong shape or dtype
Moments take_moments(Tensors& tensors, const std::string& prefix, const EmulatorArch& arch, const std::string& source);
EmulatorSelfTest take_selftest(Tensors& tensors, const EmulatorArch& arch, const std::string& source);

/// The CF name of each variable, or its short name if the CF name is unknown.
std::vector<std::string> public_names(const std::vector<std::string>& cf, const std::vector<std::string>& names);

/// The bytes of a model file.
std::string lsem_bytes(const Emulator& network, const EmulatorMetadata& metadata);
std::string safetensors_bytes(const Emulator& network, const EmulatorMetadata& metadata);
std::string onnx_bytes(const Emulator& network, const EmulatorMetadata& metadata);
std::string torchscript_bytes(const Emulator& network, const EmulatorMetadata& metadata);
void write_h5model(const std::filesystem::path& path, const Emulator& network, const EmulatorMetadata& metadata);

/// Throws ModelFileError with reason `format` and Fault::data if the condition is false.
void require_format(const Condition& condition, const auto&... parts) {
  if (!condition.holds) throw ModelFileError(ModelFileReason::format, Fault::data, join(parts...), condition.where);
}

/// Checks of a model file. errors  "opening model 'SOURCE': ..."
void require_model(const Condition& condition, const std::string& source, const auto&... parts) {
  require_data(condition, "opening model '", source, "': ", parts...);
}
void require_model_format(const Condition& condition, const std::string& source, const auto&... parts) {
  require_format(condition, "opening model '", source, "': ", parts...);
}

constexpr std::string_view kHdf5Magic = "\x89HDF\r\n\x1a\n";

/// Calls `read` and checks the self-test. Converts an Error that is no ModelFileError into one with reason `damaged` or
/// `selftest`.
TrainedEmulator read_checked(const std::string& source, EmulatorSelfTest* out,
                             const std::function<TrainedEmulator(EmulatorSelfTest&)>& read);

/// Reads a model of any format but HDF5, named `source` in messages. folder  as for read_onnx()
TrainedEmulator read_flat(std::string_view bytes, const std::string& source, const std::filesystem::path& folder,
                          EmulatorSelfTest* selftest);

/// Recognise and read one format. The self-test is returned unchecked.
bool is_lsem(std::string_view bytes);
/// folder  of files with weights; "": there are none
/// errors  also ModelFileError (usage), naming the node: a graph that is no emulator
TrainedEmulator read_onnx(std::string_view bytes, const std::string& source, const std::filesystem::path& folder,
                          EmulatorSelfTest& selftest);
/// A TorchScript archive: the top module's predict(x) if it has one, else its forward(x). Nothing is executed.
/// errors  also ModelFileError (usage), naming the file and the statement: code that is no emulator
TrainedEmulator read_torchscript(std::string_view bytes, const std::string& source, EmulatorSelfTest& selftest);
TrainedEmulator read_lsem(std::string_view bytes, const std::string& source, EmulatorSelfTest& selftest);
TrainedEmulator read_safetensors(std::string_view bytes, const std::string& source, EmulatorSelfTest& selftest);
TrainedEmulator read_h5model(const std::filesystem::path& path, EmulatorSelfTest& selftest, EmulatorWeights wanted);

}  // namespace lockstep::files
