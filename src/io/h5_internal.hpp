#pragma once
#include <hdf5.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/io/h5.hpp"

/// Declarations shared by the files of this layer, the only ones that include hdf5.h.
namespace lockstep::h5 {

/// Exclusive access to the library, because not every build of HDF5 is thread-safe. While a thread holds it, the
/// library prints no errors; the end of the outermost lock restores the host's error printing. Locks may be nested.
class LibraryLock {
 public:
  LibraryLock();
  LibraryLock(const LibraryLock&) = delete;
  LibraryLock& operator=(const LibraryLock&) = delete;
  ~LibraryLock();
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
    const LibraryLock lock;
    return close_(id) >= 0;
  }

 private:
  hid_t id_ = -1;
  Close close_ = nullptr;
};

/// The innermost line of the library's error stack, reduced to the useful part.
std::string innermost_error();
/// Prints innermost_error(), evaluated when the message is formatted: after the failed call.
struct Reason {};
inline constexpr Reason kReason;
inline std::ostream& operator<<(std::ostream& out, Reason) { return out << innermost_error(); }
/// "'/x' of 'file.h5'"
std::string quoted(const std::string& object, const H5File& file);

/// An object name as an absolute path without a trailing slash.
std::string absolute(const std::string& object);
/// errors   data: the object or a group on its path is missing or is not a hard link
void require_hard_links(hid_t file, const std::string& object, const H5File& owner);
/// errors   data: the object or a group on its path is a soft or external link
bool exists(hid_t file, const std::string& object, const H5File& owner);
H5O_type_t object_type(hid_t file, const std::string& object);
hid_t open_dataset(hid_t file, const std::string& object, const H5File& owner);

/// A property list for the creation of an object without time stamps, whose attributes and members are stored in place.
///
/// kind  H5P_FILE_CREATE, H5P_GROUP_CREATE or H5P_DATASET_CREATE
Id plain_object(hid_t kind);
hid_t native_type(H5Type type);
std::size_t size_of(H5Type type);
/// The H5Type for a stored type. errors  data: anything but plain integers, IEEE floats and strings
H5Type classify(hid_t type, const std::string& what);
std::vector<std::int64_t> extents(hid_t space, const std::string& what);
/// Product of extents. errors  data: 2^56 elements or more
std::int64_t count(const std::vector<std::int64_t>& shape, const std::string& what);

inline constexpr std::int64_t kNoLimit = INT64_MAX;  ///< the size of a file that is being written
/// errors  data: storage or filters that Lockstep does not read, or more data claimed than the file can hold
void require_plain_storage(hid_t dataset, const std::vector<std::int64_t>& shape, std::size_t element_size,
                           std::int64_t file_size, const std::string& what);

/// Rows of the outermost axis that are worth reading at once: whole chunks, about 4 MiB.
std::int64_t block_rows(hid_t dataset, const std::vector<std::int64_t>& shape, std::size_t element_size);

/// Reads the strings of a dataset or an attribute. `read` fills a buffer with elements of the given memory type.
/// errors  data: a string of variable length that lies outside its heap; more text than the file can hold
std::vector<std::string> strings(const std::filesystem::path& path, std::int64_t file_size, hid_t file_type,
                                 std::int64_t n, const std::string& what,
                                 const std::function<herr_t(hid_t memory, void* out)>& read);
/// A property list for reading that makes integers outside the memory type an error.
Id checked_transfer();
/// A UTF-8 string type of this size, padded with NUL.
Id string_type(std::size_t size);
/// Bytes of the longest string, at least 1: the size of a type that holds all of them.
std::size_t longest(std::span<const std::string> values);
/// Strings one after another, each padded with NUL to `size` bytes.
std::string padded(std::span<const std::string> values, std::size_t size);

/// Groups come before their members, and members before the next group.
struct ByPath {
  bool operator()(const std::string& a, const std::string& b) const {
    const auto order = [](char c) { return c == '/' ? 0 : static_cast<unsigned char>(c); };
    return std::ranges::lexicographical_compare(a, b, {}, order, order);
  }
};

/// An object of a file that is being written.
struct Object {
  Id id = {};                       ///< open until the file is closed
  std::optional<H5Info> info = {};  ///< of a dataset; a group has none
  std::map<std::string, H5Value> attributes = {};
  std::int64_t rows = 0;  ///< whose values are hashed; -1: the rows were not written one after another
  Hash64 numbers;
  std::uint64_t texts = 0;
  /// Whether the rows [first, first + count) follow those that are hashed. They must be hashed then.
  bool follows(std::int64_t first, std::int64_t count) {
    rows = rows == first ? first + count : -1;
    return rows >= 0;
  }
  /// The checksum of the values, if all are hashed.
  std::optional<std::uint64_t> hash() const {
    if (rows != (info->shape.empty() ? 1 : info->shape.front())) return {};
    return info->type == H5Type::text ? texts : numbers.value();
  }
};

/// What has been written into a file, by path.
struct Contents : std::map<std::string, Object, ByPath> {};

}  // namespace lockstep::h5

namespace lockstep {

struct H5File::Handle {
  std::filesystem::path path;
  h5::Id file;
  std::optional<h5::Contents> written;  ///< none: the file is open for reading
  std::int64_t file_size = 0;           ///< bytes, of a file opened for reading
  std::string object;                   ///< whose attributes were read last
  h5::Id object_id;                     ///< the same, open
};

}  // namespace lockstep
