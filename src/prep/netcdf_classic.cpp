#include <array>
#include <fstream>

#include "lockstep/base/error.hpp"
#include "lockstep/prep/netcdf.hpp"

namespace lockstep::prep {

namespace {

/// The header of a classic file. source  NetCDF Users Guide, "Classic file format specification" and its CDF-5
/// extension.
class ClassicHeader {
 public:
  ClassicHeader(std::ifstream& in, const std::filesystem::path& path, int version)
      : in_(in),
        path_(path),
        file_size_(static_cast<std::int64_t>(std::filesystem::file_size(path))),
        wide_(version == 5),
        wide_offset_(version != 1) {}

  std::int64_t size_required() {
    std::int64_t records = count();
    if (records == 0xFFFFFFFF && !wide_) records = 0;  // "streaming": the number of records is not known
    std::vector<std::int64_t> dims;
    for (std::size_t n = list(); n-- > 0;) {
      skip_padded(count());
      dims.push_back(count());
    }
    skip_attributes();

    std::int64_t end = in_.tellg(), record_bytes = 0, record_end = 0;
    int record_variables = 0;
    std::int64_t record_unpadded = 0;
    const std::size_t variables = list();
    for (std::size_t v = 0; v < variables; ++v) {
      skip_padded(count());
      const std::int64_t axes = count();
      require_sound(axes <= 1024);
      bool is_record = false;
      std::int64_t elements = 1;
      for (std::int64_t axis = 0; axis < axes; ++axis) {
        const std::int64_t id = count();
        require_sound(id < std::ssize(dims));
        const std::int64_t extent = dims[id];
        if (axis == 0 && extent == 0) {
          is_record = true;
        } else {
          require_sound(!__builtin_mul_overflow(elements, extent, &elements));
        }
      }
      skip_attributes();
      const std::int64_t type = number(4);
      count();  // vsize: redundant, and cannot hold large sizes
      const std::int64_t begin = number(wide_offset_ ? 8 : 4);
      std::int64_t bytes = 0;
      require_sound(!__builtin_mul_overflow(elements, type_size(type), &bytes) && is_size(begin) && is_size(bytes));
      if (is_record) {
        ++record_variables;
        record_unpadded = bytes;
        record_bytes += (bytes + 3) / 4 * 4;
        require_sound(is_size(record_bytes));
        record_end = std::max(record_end, begin + bytes);
      } else if (bytes > 0) {
        end = std::max(end, begin + bytes);
      }
    }
    if (record_variables == 1) record_bytes = record_unpadded;
    if (record_variables > 0 && records > 0) {
      std::int64_t span = 0;
      require_sound(!__builtin_mul_overflow(records - 1, record_bytes, &span) && is_size(span));
      end = std::max(end, record_end + span);
    }
    return end;
  }

 private:
  /// Not negative, and sums of three do not overflow.
  static bool is_size(std::int64_t bytes) { return bytes >= 0 && bytes < std::int64_t{1} << 60; }
  void require_sound(bool holds) {
    require_data(holds, "reading '", path_.string(), "': the NetCDF header is damaged or cut off");
  }
  std::int64_t number(int bytes) {
    std::uint64_t value = 0;
    for (int i = 0; i < bytes; ++i) value = value << 8 | static_cast<std::uint64_t>(in_.get() & 0xFF);
    require_sound(in_.good());
    return static_cast<std::int64_t>(value);
  }
  std::int64_t count() {
    const std::int64_t n = number(wide_ ? 8 : 4);
    require_sound(n >= 0);
    return n;
  }
  /// The number of entries of a list. Skips the tag (0 for an absent list).
  std::size_t list() {
    number(4);
    const std::int64_t n = count();
    require_sound(n < (1 << 24) && n <= file_size_ / 8);  // the library allocates them before it reads them
    return static_cast<std::size_t>(n);
  }
  void skip_padded(std::int64_t bytes) {
    require_sound(bytes <= file_size_);
    in_.seekg((bytes + 3) / 4 * 4, std::ios::cur);
  }
  void skip_attributes() {
    for (std::size_t n = list(); n-- > 0;) {
      skip_padded(count());
      const std::int64_t type = number(4);
      const std::int64_t length = count();
      require_sound(length < (std::int64_t{1} << 36));
      skip_padded(length * type_size(type));
    }
  }
  std::int64_t type_size(std::int64_t type) {
    constexpr std::array<int, 12> kSizes = {0, 1, 1, 2, 4, 4, 8, 1, 2, 4, 8, 8};
    require_sound(type >= 1 && type <= 11);
    return kSizes[static_cast<std::size_t>(type)];
  }

  std::ifstream& in_;
  const std::filesystem::path& path_;
  std::int64_t file_size_;
  bool wide_, wide_offset_;
};

}  // namespace

std::optional<std::int64_t> classic_size(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::array<char, 4> magic{};
  if (!in.read(magic.data(), 4) || magic[0] != 'C' || magic[1] != 'D' || magic[2] != 'F') return {};
  if (magic[3] != 1 && magic[3] != 2 && magic[3] != 5) return {};
  return ClassicHeader(in, path, magic[3]).size_required();
}

}  // namespace lockstep::prep
