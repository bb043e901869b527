/// Variable-length strings lie in "global heaps". The library reads them without checking sizes, so a damaged heap can
/// overwrite memory. These functions therefore walk each heap of a file first and check all references to it.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "h5_internal.hpp"

namespace lockstep::h5 {

namespace {
constexpr char kSignature[] = {'G', 'C', 'O', 'L', 1, 0, 0, 0};  // signature, version, three reserved bytes
constexpr std::size_t kHeader = 16, kReference = 16;

std::uint64_t little_endian(const char* bytes, int width) {
  std::uint64_t value = 0;
  for (int i = width; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

/// Maps the bytes of a file into memory for the life of the object.
class Mapping {
 public:
  Mapping(const std::filesystem::path& path, std::size_t size_bytes) : size_(size_bytes) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    void* at = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
    ::close(fd);
    if (at != MAP_FAILED) bytes_ = static_cast<const char*>(at);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (bytes_ != nullptr) munmap(const_cast<char*>(bytes_), size_);
  }
  const char* begin() const { return bytes_; }
  std::size_t size() const { return size_; }

 private:
  const char* bytes_ = nullptr;
  std::size_t size_;
};

/// Sizes of the strings of one heap by number, or nullopt if the heap is damaged. Layout in bytes: signature 8, size 8,
/// then per object: number 2, references 2, reserved 4, size 8, content padded to 8. Number 0 is the free space at the
/// end.
std::optional<std::map<std::uint64_t, std::uint64_t>> walk_heap(const char* heap, std::size_t available) {
  if (available < kHeader) return {};
  const std::uint64_t size = little_endian(heap + 8, 8);
  if (size < kHeader || size > available) return {};
  std::map<std::uint64_t, std::uint64_t> objects;
  for (std::uint64_t at = kHeader; size - at >= kHeader;) {
    const std::uint64_t number = little_endian(heap + at, 2), length = little_endian(heap + at + 8, 8);
    if (number == 0) return length == size - at ? std::optional(objects) : std::nullopt;
    if (length > size - at - kHeader) return {};
    const std::uint64_t padded = (length + 7) / 8 * 8;
    if (padded > size - at - kHeader) return {};
    // Strings contain no NUL. A length that is too large covers padding or the next object's header, which do.
    if (std::memchr(heap + at + kHeader, 0, length) != nullptr) return {};
    if (!objects.emplace(number, length).second) return {};
    at += kHeader + padded;
  }
  return objects;
}
}  // namespace

Heaps walk_heaps(const std::filesystem::path& path, std::int64_t file_size) {
  const Mapping file(path, static_cast<std::size_t>(file_size));
  require_data(file.begin() != nullptr, "reading '", path.string(), "': the file cannot be mapped");
  Heaps heaps;
  const char* const end = file.begin() + file.size();
  for (const char* at = file.begin();;) {
    at = static_cast<const char*>(memmem(at, static_cast<std::size_t>(end - at), kSignature, sizeof kSignature));
    if (at == nullptr) return heaps;
    auto heap = walk_heap(at, static_cast<std::size_t>(end - at));
    require_data(heap.has_value(), "reading the strings of '", path.string(), "': their heap at byte ",
                 at - file.begin(), " is damaged");
    heaps[static_cast<std::uint64_t>(at - file.begin())] = std::move(*heap);
    at += sizeof kSignature;
  }
}

void require_sound_references(const std::filesystem::path& path, std::int64_t file_size, hid_t dataset, std::int64_t n,
                              const Heaps& heaps, const std::string& what) {
  const haddr_t offset = H5Dget_offset(dataset);
  if (offset == HADDR_UNDEF) return;  // checksums cover compact data (in the header) and compressed chunks
  const Mapping file(path, static_cast<std::size_t>(file_size));
  const std::uint64_t bytes = static_cast<std::uint64_t>(n) * kReference;
  require_data(file.begin() != nullptr && offset <= file.size() && bytes <= file.size() - offset, "reading ", what,
               ": the data lie beyond the end of the file");
  for (std::int64_t i = 0; i < n; ++i) {
    const char* reference = file.begin() + offset + static_cast<std::size_t>(i) * kReference;
    const std::uint64_t length = little_endian(reference, 4), address = little_endian(reference + 4, 8),
                        number = little_endian(reference + 12, 4);
    if (length == 0 && address == 0) continue;
    const auto heap = heaps.find(address);
    const bool found = heap != heaps.end() && heap->second.contains(number) && heap->second.at(number) == length;
    require_data(found, "reading ", what, ": the reference of string ", i, " is invalid; the file is damaged");
  }
}

}  // namespace lockstep::h5
