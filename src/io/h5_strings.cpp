#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <optional>
#include <string_view>

#include "h5_internal.hpp"

/// Strings of variable length are stored in "global heaps". An element of the dataset or attribute is a reference: the
/// length (4 bytes), the heap's address (8), the string's number there (4). The library allocates the length of the
/// reference but copies the length in the heap, so a crafted file can overwrite memory. These functions therefore read
/// the references as plain bytes and the heaps directly from the file.
namespace lockstep::h5 {

namespace {
constexpr char kSignature[] = {'G', 'C', 'O', 'L', 1, 0, 0, 0};  // signature, version, three reserved bytes
constexpr std::size_t kHeader = 16, kReference = 16, kLongestString = std::size_t{1} << 26;

std::uint64_t little_endian(const char* bytes, int width) {
  std::uint64_t value = 0;
  for (int i = width; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

/// The strings of one heap by number, or nullopt if the heap is damaged. Layout in bytes: signature 8, size 8, then per
/// object: number 2, references 2, reserved 4, size 8, content padded to 8. Number 0 is the free space at the end.
using Objects = std::map<std::uint64_t, std::string_view>;
std::optional<Objects> objects_of(std::string_view heap) {
  Objects objects;
  for (std::uint64_t at = kHeader; heap.size() - at >= kHeader;) {
    const std::uint64_t number = little_endian(&heap[at], 2), length = little_endian(&heap[at + 8], 8);
    if (number == 0) return length == heap.size() - at ? std::optional(objects) : std::nullopt;
    if (length > heap.size() - at - kHeader) return {};
    const std::uint64_t padded = (length + 7) / 8 * 8;
    if (padded > heap.size() - at - kHeader) return {};
    const std::string_view text = heap.substr(at + kHeader, length);
    // Strings contain no NUL. A length that is too large covers padding or the next object's header, which do.
    if (text.find('\0') != std::string_view::npos || !objects.emplace(number, text).second) return {};
    at += kHeader + padded;
  }
  return objects;
}

/// The heaps of a file, each read on first use.
class Heaps {
 public:
  Heaps(const std::filesystem::path& path, std::int64_t file_size)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), left_(static_cast<std::uint64_t>(file_size)) {}
  Heaps(const Heaps&) = delete;
  Heaps& operator=(const Heaps&) = delete;
  ~Heaps() {
    if (fd_ >= 0) ::close(fd_);
  }
  /// The string with this number in the heap at this address, or nullopt if the file has no such string.
  std::optional<std::string_view> find(std::uint64_t address, std::uint64_t number) {
    auto heap = heaps_.find(address);
    if (heap == heaps_.end()) heap = heaps_.emplace(address, Heap{}).first, read(address, heap->second);
    const auto object = heap->second.objects.find(number);
    return object == heap->second.objects.end() ? std::nullopt : std::optional(object->second);
  }

 private:
  struct Heap {
    std::vector<char> bytes;
    Objects objects;
  };
  bool read_at(std::uint64_t address, char* to, std::size_t size) const {
    return address < std::uint64_t{1} << 62 &&
           ::pread(fd_, to, size, static_cast<off_t>(address)) == static_cast<ssize_t>(size);
  }
  void read(std::uint64_t address, Heap& heap) {
    char header[kHeader];
    if (!read_at(address, header, kHeader) || std::memcmp(header, kSignature, sizeof kSignature) != 0) return;
    const std::uint64_t size = little_endian(header + 8, 8);
    if (size < kHeader || size > left_) return;  // heaps do not overlap: together they fit the file
    left_ -= size;
    heap.bytes.resize(size);
    if (!read_at(address, heap.bytes.data(), size)) return;
    if (auto objects = objects_of({heap.bytes.data(), heap.bytes.size()})) heap.objects = std::move(*objects);
  }

  int fd_;
  std::uint64_t left_;
  std::map<std::uint64_t, Heap> heaps_;
};

/// While an object lives, the library can convert strings of variable length to `type`: references as plain bytes.
struct AsReferences {
  Id variable{H5Tcopy(H5T_C_S1), H5Tclose}, type{H5Tcreate(H5T_OPAQUE, kReference), H5Tclose};

  AsReferences() {
    H5Tset_size(variable, H5T_VARIABLE);
    H5Tregister(H5T_PERS_SOFT, kName, variable, type, keep);
  }
  AsReferences(const AsReferences&) = delete;
  AsReferences& operator=(const AsReferences&) = delete;
  ~AsReferences() { H5Tunregister(H5T_PERS_SOFT, kName, variable, type, keep); }

 private:
  static constexpr const char* kName = "lockstep: references";
  /// A conversion that leaves the bytes as they are.
  static herr_t keep(hid_t from, hid_t to, H5T_cdata_t* data, std::size_t, std::size_t, std::size_t, void*, void*,
                     hid_t) {
    if (data->command != H5T_CONV_INIT) return 0;
    data->need_bkg = H5T_BKG_NO;
    return H5Tget_size(from) == kReference && H5Tget_size(to) == kReference ? 0 : -1;
  }
};
}  // namespace

std::vector<std::string> strings(const std::filesystem::path& path, std::int64_t file_size, hid_t file_type,
                                 std::int64_t n, const std::string& what,
                                 const std::function<herr_t(hid_t memory, void* out)>& read) {
  std::vector<std::string> out(n);
  if (n == 0) return out;
  const bool variable = H5Tis_variable_str(file_type) > 0;
  const std::size_t size = variable ? kReference : H5Tget_size(file_type);
  require_data(size > 0 && size <= kLongestString, "reading ", what, ": strings of ", size, " bytes");
  std::vector<char> bytes(out.size() * size);
  if (variable) {
    const AsReferences references;
    require_data(read(references.type, bytes.data()) >= 0, "reading ", what, ": ", kReason);
    Heaps heaps(path, file_size);
    auto left = static_cast<std::uint64_t>(file_size);  // no two elements share a string
    for (std::size_t i = 0; i < out.size(); ++i) {
      const char* reference = bytes.data() + i * kReference;
      const std::uint64_t length = little_endian(reference, 4), address = little_endian(reference + 4, 8);
      if (length == 0 && address == 0) continue;
      const auto text = heaps.find(address, little_endian(reference + 12, 4));
      require_data(text && text->size() == length && length <= left, "reading ", what, ": the reference of string ", i,
                   " is invalid; the file is damaged");
      left -= length;
      out[i] = *text;
    }
    return out;
  }
  const Id memory = string_type(size);
  H5Tset_cset(memory, H5Tget_cset(file_type));
  require_data(read(memory, bytes.data()) >= 0, "reading ", what, ": ", kReason);
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::string_view field(bytes.data() + i * size, size);
    if (const auto end = field.find('\0'); end != std::string_view::npos) field = field.substr(0, end);
    if (H5Tget_strpad(file_type) == H5T_STR_SPACEPAD)
      while (!field.empty() && field.back() == ' ') field.remove_suffix(1);
    out[i] = field;
  }
  return out;
}

}  // namespace lockstep::h5
