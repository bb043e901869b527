#pragma once
#include <hdf5.h>

#include <cstdint>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/io/h5.hpp"

/// Declarations shared by the files of this layer, the only ones that include hdf5.h.
namespace lockstep::h5 {

/// Exclusive access to the library, because not every build of HDF5 is thread-safe. Also configures the library for
/// this thread: no error printing, no clean-up at exit (it would retry a file on a full disk), and an error instead of
/// a signal when a file exceeds the size limit. May be nested.
class Turn {
 public:
  Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn();
};

/// An HDF5 identifier with the function that releases it.
class Id {
 public:
  using Close = herr_t (*)(hid_t);
  Id() = default;
  Id(hid_t id, Close close) : id_(id), close_(close) {}
  Id(Id&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Id& operator=(Id&& other) noexcept {
    reset();
    id_ = std::exchange(other.id_, -1);
    close_ = other.close_;
    return *this;
  }
  ~Id() { reset(); }
  operator hid_t() const { return id_; }  // NOLINT: implicit on purpose
  bool valid() const { return id_ >= 0; }
  /// Closes now. Returns false if the library reports a failure, for example of a deferred write.
  bool reset() {
    const hid_t id = std::exchange(id_, -1);
    if (id < 0) return true;
    const Turn turn;
    return close_(id) >= 0;
  }

 private:
  hid_t id_ = -1;
  Close close_ = nullptr;
};

/// The innermost line of the library's error stack, reduced to the useful part.
std::string innermost_error();
/// Prints innermost_error(). It is evaluated when the message is formatted, after the failed call.
struct Reason {};
inline constexpr Reason kReason;
inline std::ostream& operator<<(std::ostream& out, Reason) { return out << innermost_error(); }
/// "'/x' of 'file.h5'"
std::string quoted(const std::string& object, const H5File& file);

/// An object name as an absolute path without a trailing slash.
std::string absolute(const std::string& object);
/// errors   data: the object or a group on its path is missing or is not a hard link
void require_hard_links(hid_t file, const std::string& object, const H5File& owner);
bool exists_by_hard_links(hid_t file, const std::string& object);
H5O_type_t object_type(hid_t file, const std::string& object);
hid_t open_dataset(hid_t file, const std::string& object, const H5File& owner);

hid_t native_type(H5Type type);
std::size_t size_of(H5Type type);
/// The H5Type for a stored type. errors  data: anything but plain integers, IEEE floats and strings
H5Type classify(hid_t type, const std::string& what);
std::vector<std::int64_t> extents(hid_t space, const std::string& what);
/// Product of extents. errors  data: more than 2^62 elements
std::int64_t count(const std::vector<std::int64_t>& shape, const std::string& what);
std::string shape_text(const std::vector<std::int64_t>& shape);

/// errors  data: storage or filters that Lockstep does not read, or more data claimed than the file can hold
void require_plain_storage(hid_t dataset, const std::vector<std::int64_t>& shape, std::size_t element_size,
                           std::int64_t file_size, const std::string& what);

/// Sizes of the strings in the heaps of a file, by the heap's address and the string's number.
using Heaps = std::map<std::uint64_t, std::map<std::uint64_t, std::uint64_t>>;
/// Finds every heap of a file with one pass over its bytes. errors  data: a damaged heap
Heaps walk_heaps(const std::filesystem::path& path, std::int64_t file_size);
/// Checks the references of a dataset of variable-length strings. errors  data: a reference to no string
void require_sound_references(const std::filesystem::path& path, std::int64_t file_size, hid_t dataset, std::int64_t n,
                              const Heaps& heaps, const std::string& what);
/// Reads the strings of a dataset or an attribute. `read` fills a buffer of the given memory type.
template <class Read>
std::vector<std::string> strings(hid_t file_type, std::int64_t n, const std::string& what, Read read);
/// A property list for reading that makes integers outside the memory type an error.
Id checked_transfer();
/// A UTF-8 string type: variable length for size 0, otherwise NUL-padded with this size.
Id string_type(std::size_t size);

}  // namespace lockstep::h5

namespace lockstep {

struct H5File::Handle {
  std::filesystem::path path;
  h5::Id file;
  bool writing = false;
  H5Strings strings = H5Strings::fixed;
  std::int64_t file_size = 0;              ///< bytes, of a file opened for reading
  mutable std::optional<h5::Heaps> heaps;  ///< set when the first variable-length string is read

  const h5::Heaps& sound_heaps() const {
    if (!heaps) heaps = h5::walk_heaps(path, file_size);
    return *heaps;
  }
};

}  // namespace lockstep

namespace lockstep::h5 {

constexpr std::size_t kLongestString = std::size_t{1} << 26;

template <class Read>
std::vector<std::string> strings(hid_t file_type, std::int64_t n, const std::string& what, Read read) {
  std::vector<std::string> out(static_cast<std::size_t>(n));
  if (n == 0) return out;
  if (H5Tis_variable_str(file_type) > 0) {
    const Id memory = string_type(0);
    H5Tset_cset(memory, H5Tget_cset(file_type));
    std::vector<char*> rows(out.size(), nullptr);
    require_data(read(static_cast<hid_t>(memory), static_cast<void*>(rows.data())) >= 0, "reading ", what, ": ",
                 kReason);
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (rows[i] != nullptr) out[i] = rows[i];
      H5free_memory(rows[i]);
    }
    return out;
  }
  const std::size_t size = H5Tget_size(file_type);
  require_data(size > 0 && size <= kLongestString, "reading ", what, ": strings of ", size, " bytes");
  const Id memory = string_type(size);
  H5Tset_cset(memory, H5Tget_cset(file_type));
  std::vector<char> bytes(out.size() * size);
  require_data(read(static_cast<hid_t>(memory), static_cast<void*>(bytes.data())) >= 0, "reading ", what, ": ",
               kReason);
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::string_view field(bytes.data() + i * size, size);
    if (const auto end = field.find('\0'); end != std::string_view::npos) field = field.substr(0, end);
    if (H5Tget_strpad(file_type) == H5T_STR_SPACEPAD) {
      while (!field.empty() && field.back() == ' ') field.remove_suffix(1);
    }
    out[i] = field;
  }
  return out;
}

}  // namespace lockstep::h5
