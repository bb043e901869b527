#include "lockstep/io/file_kind.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "lockstep/base/error.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/io/dataset_file.hpp"
#include "lockstep/io/file_system.hpp"
#include "lockstep/io/seal.hpp"

namespace lockstep {

namespace {

constexpr const char* kNames[] = {"a checkpoint",
                                  "a part of a sharded checkpoint",
                                  "a prepared data set",
                                  "an emulator's model file",
                                  "a safetensors file",
                                  "an HDF5 file of another program",
                                  "a damaged or truncated HDF5 file",
                                  "a PyTorch file",
                                  "a TorchScript archive",
                                  "an ONNX file",
                                  "a NumPy file",
                                  "a configuration",
                                  "a text file",
                                  "an empty file",
                                  "a compressed file (unpack it first)",
                                  "a file of an unknown kind"};
constexpr std::size_t kHead = 4096;
constexpr std::string_view kCompressed[] = {"\x1f\x8b", "\xfd\x37zXZ", "BZh",
                                            "\x28\xb5\x2f\xfd"};  // gzip, xz, bzip2, zstd

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
    return FileKind::hdf5;
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
  std::string tail(static_cast<std::size_t>(std::min(size, kDirectory)), '\0');
  file.seekg(size - static_cast<std::streamoff>(tail.size()));
  file.read(tail.data(), static_cast<std::streamsize>(tail.size()));
  return tail.find("/constants.pkl") != std::string::npos ? FileKind::torchscript : FileKind::pytorch;
}

/// `head` may end within a line.
FileKind kind_of_text(const std::string& head) {
  const bool printable = std::ranges::all_of(head, [](unsigned char c) { return c >= ' ' || std::isspace(c) != 0; });
  if (!printable) return FileKind::unknown;
  try {
    return read_ini(head.substr(0, head.size() < kHead ? head.size() : head.rfind('\n') + 1), "").empty()
               ? FileKind::text
               : FileKind::configuration;
  } catch (const Error&) {
    return FileKind::text;
  }
}

}  // namespace

const char* name(FileKind kind) { return kNames[static_cast<std::size_t>(kind)]; }

FileKind file_kind(const std::filesystem::path& path) {
  require_file(path, "opening");
  std::string head(kHead, '\0');
  std::ifstream in(path, std::ios::binary);
  require_usage(in.is_open(), "opening '", path.string(), "': ", std::strerror(errno));
  in.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<std::size_t>(in.gcount()));
  if (head.empty()) return FileKind::empty;
  if (head.starts_with("\x89HDF\r\n\x1a\n")) return kind_of_hdf5(path);
  if (head.starts_with("LSEMUL")) return FileKind::model;
  if (head.starts_with("\x93NUMPY")) return FileKind::numpy;
  if (head.starts_with("PK\x03\x04")) return kind_of_zip(head, in);
  if (head.starts_with("\x80\x02")) return FileKind::pytorch;  // a pickle, as torch.save wrote before 1.6
  constexpr std::size_t kJsonAt = 8;                           // after the length of the header
  if (head.size() > kJsonAt && head[kJsonAt] == '{' && head[kJsonAt - 1] == '\0') return FileKind::safetensors;
  if (std::ranges::any_of(kCompressed, [&](std::string_view magic) { return head.starts_with(magic); }))
    return FileKind::compressed;
  if (head.starts_with("\x08") && head.find("\x12") <= 3) return FileKind::onnx;  // ir_version, then producer_name
  return kind_of_text(head);
}

}  // namespace lockstep
