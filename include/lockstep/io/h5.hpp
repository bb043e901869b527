#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace lockstep {

/// HDF5 as typed arrays: everything of the library that Lockstep uses. `hdf5.h` is included nowhere else.
///
/// Every failure is an Error that names file, object, expected and found:
/// `opening dataset '/x' of 'data/ml-1m.h5': no such dataset; rebuild it with lockstep-prep`. Reading fails with Fault::data,
/// writing with Fault::internal, a missing file with Fault::usage. HDF5's own error stack is silenced and its innermost line quoted.
///
/// Read safety: hard links, plain integer, float and string types and contiguous, chunked or compact storage with the
/// deflate, shuffle and fletcher32 filters only; extents are checked against the file's size before anything is allocated.
/// A flipped bit in plain data reads back silently (HDF5 sums metadata only): whoever needs more keeps checksums of `read<T>`'s bytes.
/// Threads take turns in the library, whatever they read; a file that is being written is for one of them.

using H5Value = std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<double>, std::vector<std::string>>;

enum class H5Type : std::uint8_t { u8, i32, i64, f32, f64, text };
const char* name(H5Type type);
template <class T> struct h5_type_of;
template <> struct h5_type_of<std::uint8_t> { static constexpr H5Type value = H5Type::u8; };
template <> struct h5_type_of<std::int32_t> { static constexpr H5Type value = H5Type::i32; };
template <> struct h5_type_of<std::int64_t> { static constexpr H5Type value = H5Type::i64; };
template <> struct h5_type_of<float> { static constexpr H5Type value = H5Type::f32; };
template <> struct h5_type_of<double> { static constexpr H5Type value = H5Type::f64; };

/// What a dataset is, without reading it. Integers other than u8, i32 and i64 are reported as the next wider one of these.
struct H5Info {
  H5Type type;
  std::vector<std::int64_t> shape;
};

/// How the strings of a new file are stored: fixed length (NUL-padded UTF-8, covered by the checksums of the metadata; the default)
/// or variable length (what h5py hands out as `str`; kept in HDF5's global heap).
enum class H5Strings : std::uint8_t { fixed, variable };

/// How a new dataset is stored.
struct H5Layout {
  std::vector<std::int64_t> chunk;  ///< empty: contiguous
  int deflate = 0;                  ///< 0 none .. 9, with shuffle; needs a chunk
};

class H5File {
 public:
  /// Opens for reading. errors  usage: missing or not readable; data: not HDF5, truncated, still open for writing
  static H5File open(const std::filesystem::path& path);
  /// Creates a new file (superblock 3: its metadata carry checksums), replacing an existing one. Equal contents make equal bytes:
  /// no time stamps are stored.
  static H5File create(const std::filesystem::path& path, H5Strings strings = H5Strings::fixed);
  H5File(H5File&&) noexcept;
  H5File& operator=(H5File&&) noexcept;
  ~H5File();
  const std::filesystem::path& path() const;
  /// Sets HDF5 up for this process: a failed file is not tried again at exit, exceeding a file size limit is an error. open() and
  /// create() do it; a program that reaches HDF5 through another library (libnetcdf) too calls it before that one does.
  static void prepare_library();

  bool has(const std::string& object) const;  ///< a dataset or group at this absolute path
  bool is_group(const std::string& object) const;
  std::vector<std::string> list(const std::string& group) const;         ///< names of the members, sorted
  std::vector<std::string> datasets_under(const std::string& group) const;  ///< absolute paths of all datasets below, sorted
  H5Info info(const std::string& dataset) const;

  /// The whole dataset, converted to T by HDF5. errors  data: missing; a type of another class (integers are not read as floats
  /// nor the reverse); an integer that does not fit T; more elements than the file can hold
  template <class T> std::vector<T> read(const std::string& dataset) const;
  /// The whole dataset into memory of exactly its size; `expected_shape` empty means any.
  template <class T> void read_into(const std::string& dataset, std::span<T> out, const std::vector<std::int64_t>& expected_shape = {}) const;
  /// Rows [first, first + count) of the outermost axis (a hyperslab).
  template <class T> void read_rows(const std::string& dataset, std::int64_t first, std::int64_t count, std::span<T> out) const;
  std::vector<std::string> read_text(const std::string& dataset) const;

  template <class T>
  void write(const std::string& dataset, std::span<const T> values, const std::vector<std::int64_t>& shape, const H5Layout& layout = {});
  void write_text(const std::string& dataset, const std::vector<std::string>& values);
  /// A dataset of this shape to be filled by write_rows; rows never written hold no defined values.
  void create_dataset(const std::string& dataset, H5Type type, const std::vector<std::int64_t>& shape, const H5Layout& layout = {});
  /// Rows [first, first + count) of the outermost axis, of a file that is being created.
  template <class T> void write_rows(const std::string& dataset, std::int64_t first, std::int64_t count, std::span<const T> values);
  void create_group(const std::string& group);  ///< with its parents; nothing happens when it exists

  bool has_attribute(const std::string& object, const std::string& attribute) const;
  std::vector<std::string> attributes(const std::string& object) const;
  /// Integers of any width, floats and strings; an array of any rank comes flattened.
  H5Value attribute(const std::string& object, const std::string& attribute) const;
  /// One value of this kind; real_attribute also takes an integer. errors  data: missing, or of another kind
  std::int64_t int_attribute(const std::string& object, const std::string& attribute) const;
  double real_attribute(const std::string& object, const std::string& attribute) const;
  std::string text_attribute(const std::string& object, const std::string& attribute) const;
  /// Writes or replaces an attribute of an existing dataset or group ("/" is the file itself).
  void set_attribute(const std::string& object, const std::string& attribute, const H5Value& value);

  /// H5Fflush and close; errors surface here (the destructor swallows them). The file may not be used afterwards.
  void close();

 private:
  struct Handle;
  explicit H5File(std::unique_ptr<Handle> handle);
  std::unique_ptr<Handle> handle_;
};

}  // namespace lockstep
