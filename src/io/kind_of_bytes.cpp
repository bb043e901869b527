// Apart from file_kind.cpp, so that a library without HDF5 links.
#include <algorithm>
#include <cctype>
#include <string>

#include "lockstep/base/options.hpp"
#include "lockstep/io/file_kind.hpp"

namespace lockstep {
namespace {

constexpr const char* kNames[] = {"a checkpoint",
                                  "a part of a sharded checkpoint",
                                  "a prepared data set",
                                  "a file of predictions or Jacobians",
                                  "an emulator's model file",
                                  "a safetensors file",
                                  "an HDF5 file of another program",
                                  "a damaged or truncated HDF5 file",
                                  "a PyTorch file",
                                  "a TorchScript archive",
                                  "an ONNX file",
                                  "a NumPy file",
                                  "a NetCDF file (lockstep-prep netcdf reads it)",
                                  "a configuration",
                                  "a text file",
                                  "an empty file",
                                  "a compressed file (unpack it first)",
                                  "a file of an unknown kind"};
constexpr std::size_t kHead = 4096;
constexpr std::string_view kCompressed[] = {"\x1f\x8b", "\xfd\x37zXZ", "BZh",
                                            "\x28\xb5\x2f\xfd"};  // gzip, xz, bzip2, zstd

/// `head` may end within a line.
FileKind kind_of_text(std::string_view head) {
  const bool printable = std::ranges::all_of(head, [](unsigned char c) { return c >= ' ' || std::isspace(c) != 0; });
  if (!printable) return FileKind::unknown;
  try {
    return read_ini(std::string(head.substr(0, head.size() < kHead ? head.size() : head.rfind('\n') + 1)), "").empty()
               ? FileKind::text
               : FileKind::configuration;
  } catch (const Error&) {
    return FileKind::text;
  }
}

/// Whether the bytes begin with fields of ONNX's ModelProto, in any order. `head` may end within a field.
/// source  github.com/onnx/onnx, onnx.proto
bool is_onnx(std::string_view head) {
  const auto varint = [&](std::uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (head.empty()) return false;
      const auto byte = static_cast<unsigned char>(head[0]);
      head.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  };
  while (!head.empty()) {
    std::uint64_t key = 0, value = 0;
    if (!varint(key)) return head.empty();
    const std::uint64_t field = key >> 3, wire = key & 7;
    const bool number = field == 1 || field == 5;  // ir_version, model_version
    const bool text =
        (field >= 2 && field <= 8 && field != 5) || field == 14 || field == 20 || field == 25 || field == 26;
    if (!(number && wire == 0) && !(text && wire == 2)) return false;
    if (!varint(value)) return head.empty();
    if (text) head.remove_prefix(std::min<std::uint64_t>(value, head.size()));
  }
  return true;
}

}  // namespace

const char* name(FileKind kind) { return kNames[static_cast<std::size_t>(kind)]; }

FileKind kind_of_bytes(std::string_view bytes) {
  const std::string_view head = bytes.substr(0, kHead);
  if (head.empty()) return FileKind::empty;
  if (head.starts_with("\x89HDF\r\n\x1a\n")) return FileKind::hdf5;
  if (head.starts_with("LSEMUL")) return FileKind::model;
  if (head.starts_with("\x93NUMPY")) return FileKind::numpy;
  if (head.starts_with("CDF\x01") || head.starts_with("CDF\x02") || head.starts_with("CDF\x05"))
    return FileKind::netcdf;
  if (head.starts_with("\x80\x02")) return FileKind::pytorch;  // a pickle, as torch.save wrote before 1.6
  constexpr std::size_t kJsonAt = 8;                           // after the length of the header
  if (head.size() > kJsonAt && head[kJsonAt] == '{' && head[kJsonAt - 1] == '\0') return FileKind::safetensors;
  if (std::ranges::any_of(kCompressed, [&](std::string_view magic) { return head.starts_with(magic); }))
    return FileKind::compressed;
  const FileKind text = kind_of_text(head);
  return text == FileKind::unknown && is_onnx(head) ? FileKind::onnx : text;
}

}  // namespace lockstep
