#include "lockstep/io/file_kind.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "lockstep/base/error.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/dataset_file.hpp"
#include "lockstep/io/file_system.hpp"
#include "lockstep/io/seal.hpp"

namespace lockstep {

namespace {

constexpr std::size_t kHead = 4096;

FileKind kind_of_hdf5(const std::filesystem::path& path) {
  if (has_end_mark(path) && !end_mark_defect(path).empty()) return FileKind::damaged_hdf5;
  try {
    const H5File file = H5File::open(path);
    const std::string format = file.has_attribute("/", "format") ? file.text_attribute("/", "format") : "";
    if (format == "lockstep-checkpoint") return FileKind::checkpoint;
    if (format == "lockstep-checkpoint-part") return FileKind::checkpoint_part;
    if (format == "lockstep-emulator-model") return FileKind::model;
    for (const DatasetFormat& known : {kSequencesFormat, kKgatFormat, kEmulatorFormat, kHrmFormat, kHarFormat})
      if (format == known.name) return FileKind::data_set;
    return file.has_attribute("/", "lockstep") && file.has_attribute("/", "command") ? FileKind::predictions
                                                                                     : FileKind::hdf5;
  } catch (const Error&) {
    return FileKind::damaged_hdf5;
  }
}

/// A zip archive by the name of its first member: np.savez stores NAME.npy, torch.save NAME/data.pkl. TorchScript also
/// has NAME/constants.pkl, which the directory at the end lists.
FileKind kind_of_zip(const std::string& head, std::ifstream& file) {
  constexpr std::size_t kLengthAt = 26, kNameAt = 30;
  if (head.size() < kNameAt) return FileKind::unknown;
  const auto length = static_cast<std::size_t>(static_cast<unsigned char>(head[kLengthAt])) +
                      256 * static_cast<std::size_t>(static_cast<unsigned char>(head[kLengthAt + 1]));
  const std::string first = head.substr(kNameAt, length);
  if (first.ends_with(".npy")) return FileKind::numpy;
  if (first.find('/') == std::string::npos) return FileKind::unknown;
  constexpr std::streamoff kDirectory = 1 << 20;
  file.clear();
  file.seekg(0, std::ios::end);
  const std::streamoff size = file.tellg();
  std::string tail(std::min(size, kDirectory), '\0');
  file.seekg(size - static_cast<std::streamoff>(tail.size()));
  file.read(tail.data(), static_cast<std::streamsize>(tail.size()));
  return tail.find("/constants.pkl") != std::string::npos ? FileKind::torchscript : FileKind::pytorch;
}

}  // namespace

FileKind file_kind(const std::filesystem::path& path) {
  require_file(path, "opening");
  std::string head(kHead, '\0');
  std::ifstream in(path, std::ios::binary);
  require_usage(in.is_open(), "opening '", path.string(), "': ", std::strerror(errno));
  in.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(in.gcount());
  if (head.starts_with("PK\x03\x04")) return kind_of_zip(head, in);
  const FileKind kind = kind_of_bytes(head);
  return kind == FileKind::hdf5 ? kind_of_hdf5(path) : kind;
}

void require_replaceable(const std::filesystem::path& path, FileKind kind, std::optional<bool> force,
                         const std::vector<std::filesystem::path>& inputs) {
  require_writable(path, inputs);
  if (!std::filesystem::exists(path) || force.value_or(false)) return;
  const FileKind found = file_kind(path);
  const std::string advice = join("; choose another output, or ", force ? "add --force" : "remove that file first");
  require_usage(found == kind || found == FileKind::empty, "writing '", path.string(), "': it exists and is ",
                name(found), ", which ", name(kind), " would replace", advice);
  require_usage(std::filesystem::canonical(path).parent_path().filename() != "checkpoints", "writing '", path.string(),
                "': it exists in a folder of checkpoints, where a run keeps what it continues from", advice);
}

}  // namespace lockstep
