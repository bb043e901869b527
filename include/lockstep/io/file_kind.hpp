#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace lockstep {

/// What a file holds.
enum class FileKind : std::uint8_t {
  checkpoint,
  checkpoint_part,  ///< of a sharded checkpoint
  data_set,         ///< of lockstep-prep
  predictions,      ///< HDF5 or netCDF, of lockstep predict or jacobian
  model,            ///< an emulator for other programs: h5model or lsem
  safetensors,      ///< may hold an emulator, too
  hdf5,             ///< of another program
  damaged_hdf5,
  pytorch,
  torchscript,
  onnx,
  numpy,
  netcdf,  ///< classic; NetCDF-4 is hdf5
  configuration,
  text,
  empty,
  compressed,
  unknown,
};
/// For messages: "a PyTorch file".
const char* name(FileKind kind);

/// Finds the kind by the first bytes and, for HDF5, by the attribute `format`. A file whose end mark is wrong is
/// damaged_hdf5; it never reaches the HDF5 library.
/// errors  usage: missing, a directory, or not readable
FileKind file_kind(const std::filesystem::path& path);
/// The same by a file's first bytes alone: hdf5 for every HDF5 file, unknown for zip archives. Needs no HDF5 library.
FileKind kind_of_bytes(std::string_view bytes);

/// Checks that a command may write a file of this kind: require_writable(), and nothing else is lost. An existing file
/// must be empty or of the same kind, and not in a folder `checkpoints`, which holds what a run needs.
/// force    the option --force, which allows that loss; none: the command has no such option
/// errors   usage: as require_writable(); an existing file, naming its kind
void require_replaceable(const std::filesystem::path& path, FileKind kind, std::optional<bool> force,
                         const std::vector<std::filesystem::path>& inputs = {});

}  // namespace lockstep
