#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

namespace lockstep {

/// HDF5 files as typed arrays: all HDF5 access of Lockstep. Only this layer includes `hdf5.h`.
///
/// Every failure is an Error that names the file, the object, and the expected and the found values: `opening dataset
/// '/x' of 'data/ml-1m.h5': no such dataset; rebuild it with lockstep-prep`. Reading fails with Fault::data, writing
/// with Fault::internal, a missing file with Fault::usage. The message quotes the innermost line of HDF5's error stack,
/// which prints nothing itself.
///
/// Read safety: only hard links; only plain integer, float and string types; only contiguous, chunked or compact
/// storage with the deflate, shuffle and fletcher32 filters. Extents are checked against the file size before any
/// allocation. HDF5 has checksums of metadata only, so a flipped bit in plain data is read without an error; seal.hpp
/// adds checksums. Strings of variable length, which other programs write, are read without the library, which trusts
/// their lengths. One thread at a time enters the library. Only one thread may use a file that is being written.

using H5Value = std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<double>,
                             std::vector<std::string>>;

enum class H5Type : std::uint8_t { u8, i32, i64, f32, f64, text };
const char* name(H5Type type);
/// The type of a dataset of T, a number.
template <class T>
struct h5_type_of {
  static constexpr H5Type value = std::is_same_v<T, std::uint8_t>   ? H5Type::u8
                                  : std::is_same_v<T, std::int32_t> ? H5Type::i32
                                  : std::is_same_v<T, std::int64_t> ? H5Type::i64
                                  : std::is_same_v<T, float>        ? H5Type::f32
                                                                    : H5Type::f64;
  static_assert(value != H5Type::f64 || std::is_same_v<T, double>);
};

/// Calls f<T>() with the C++ type of a number type.
template <class F>
auto visit_numbers(H5Type type, const F& f) {
  if (type == H5Type::u8) return f.template operator()<std::uint8_t>();
  if (type == H5Type::i32) return f.template operator()<std::int32_t>();
  if (type == H5Type::i64) return f.template operator()<std::int64_t>();
  if (type == H5Type::f32) return f.template operator()<float>();
  return f.template operator()<double>();
}

/// The type and shape of a dataset. Integers other than u8, i32 and i64 are reported as the next wider of these.
struct H5Info {
  H5Type type;
  std::vector<std::int64_t> shape;
  std::int64_t elements() const {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  }
};

/// The storage of a new dataset.
struct H5Layout {
  std::vector<std::int64_t> chunk;  ///< empty: contiguous
  int deflate = 0;                  ///< 0 (none) to 9, with shuffle; needs a chunk shape
};

namespace h5 {
struct Contents;
}  // namespace h5

class H5File {
 public:
  /// Opens a file for reading. copy: a file with the same bytes to read instead; path() and messages still name `path`
  /// errors   usage: missing or not readable; data: not HDF5, truncated, or still open for writing
  static H5File open(const std::filesystem::path& path, const std::filesystem::path& copy = {});
  /// Creates a file (superblock 3, with metadata checksums) and replaces an existing one. Strings have fixed length:
  /// UTF-8, padded with NUL. Files with equal contents are equal byte for byte, because no time stamps are stored.
  static H5File create(const std::filesystem::path& path);
  H5File(H5File&&) noexcept;
  H5File& operator=(H5File&&) noexcept;
  ~H5File();
  const std::filesystem::path& path() const;
  /// Configures HDF5 for this process: no retry of a failed file at exit, and an error instead of a signal when a file
  /// exceeds the size limit. Our programs call it before they use HDF5. liblockstep does not: both settings belong to
  /// its host.
  static void prepare_library();

  /// Whether a dataset or group exists at this absolute path. errors  data: a soft or external link on the path
  bool has(const std::string& object) const;
  bool is_group(const std::string& object) const;
  std::vector<std::string> list(const std::string& group) const;  ///< names of the members, sorted
  /// Absolute paths of all datasets below a group, sorted.
  std::vector<std::string> datasets_under(const std::string& group) const;
  /// errors   data: missing; a type or storage that Lockstep does not read; more elements than the file can hold
  H5Info info(const std::string& dataset) const;

  /// Reads a whole dataset. HDF5 converts it to T.
  /// errors   data: missing; a type of another class (integer or float); an integer that does not fit T; more elements
  ///          than the file can hold
  template <class T>
  std::vector<T> read(const std::string& dataset) const;
  /// Reads a whole dataset into memory of exactly its size. An empty `expected_shape` accepts any shape.
  template <class T>
  void read_into(const std::string& dataset, std::span<T> out,
                 const std::vector<std::int64_t>& expected_shape = {}) const;
  /// Reads rows [first, first + count) of the outermost axis.
  template <class T>
  void read_rows(const std::string& dataset, std::int64_t first, std::int64_t count, std::span<T> out) const;
  /// Reads a whole dataset block by block: whole chunks, about 4 MiB. `visit` gets the number of a block's first
  /// element and its elements.
  template <class T>
  void read_blocks(const std::string& dataset,
                   const std::function<void(std::int64_t first, std::span<const T> values)>& visit) const;
  std::vector<std::string> read_text(const std::string& dataset) const;

  template <class T>
  void write(const std::string& dataset, std::span<const T> values, const std::vector<std::int64_t>& shape,
             const H5Layout& layout = {});
  void write_text(const std::string& dataset, const std::vector<std::string>& values);
  /// Creates a dataset for write_rows(). The values of rows that are never written are undefined.
  void create_dataset(const std::string& dataset, H5Type type, const std::vector<std::int64_t>& shape,
                      const H5Layout& layout = {});
  /// Creates a dataset of strings for write_text_rows(). longest: bytes of the longest string, >= 1
  void create_text(const std::string& dataset, const std::vector<std::int64_t>& shape, std::size_t longest);
  /// Writes rows [first, first + count) of the outermost axis, in a file that is being created.
  template <class T>
  void write_rows(const std::string& dataset, std::int64_t first, std::int64_t count, std::span<const T> values);
  /// The same for strings. errors  internal: a string longer than the dataset's
  void write_text_rows(const std::string& dataset, std::int64_t first, std::int64_t count,
                       std::span<const std::string> values);
  void create_group(const std::string& group);  ///< with its parents; does nothing if the group exists

  bool has_attribute(const std::string& object, const std::string& attribute) const;
  std::vector<std::string> attributes(const std::string& object) const;
  /// An attribute of any kind: integers of any width, floats or strings. Arrays of any rank are flattened. For code
  /// that copies or prints attributes; code that expects one kind calls the functions below.
  H5Value attribute(const std::string& object, const std::string& attribute) const;
  /// One value of this kind; real_attribute also takes an integer.
  /// errors  data, naming file, attribute, what was expected and what was found: missing, of another kind, an array
  std::int64_t int_attribute(const std::string& object, const std::string& attribute) const;
  double real_attribute(const std::string& object, const std::string& attribute) const;
  std::string text_attribute(const std::string& object, const std::string& attribute) const;
  /// A list (one axis) of values of this kind, `count` of them (-1: any number); real_list also takes integers.
  /// errors  as above
  std::vector<std::int64_t> int_list(const std::string& object, const std::string& attribute,
                                     std::int64_t count = -1) const;
  std::vector<double> real_list(const std::string& object, const std::string& attribute, std::int64_t count = -1) const;
  std::vector<std::string> text_list(const std::string& object, const std::string& attribute,
                                     std::int64_t count = -1) const;
  /// Writes or replaces an attribute of an existing dataset or group ("/" is the file itself).
  void set_attribute(const std::string& object, const std::string& attribute, const H5Value& value);

  /// What has been written into this file, for the checksums of seal.hpp; null: it is open for reading.
  const h5::Contents* written() const;
  /// Flushes and closes the file, with errors (the destructor ignores them). The file must not be used afterwards.
  void close();

 private:
  struct Handle;
  template <class T>
  T typed_attribute(const std::string& object, const std::string& attribute, const char* kind,
                    std::int64_t count = -1) const;
  explicit H5File(std::unique_ptr<Handle> handle);
  std::unique_ptr<Handle> handle_;
};

}  // namespace lockstep
