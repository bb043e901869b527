#pragma once
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/io/h5.hpp"

namespace lockstep {

/// A kind of prepared file, known by its attributes `format` and `version`. data/README.md describes the contents.
struct DatasetFormat {
  const char* name;
  std::int64_t version;
  const char* sources;  ///< the commands of lockstep-prep that write it
};
inline constexpr DatasetFormat kSequencesFormat = {"lockstep-seqrec", 1, "sequences or synth-sequences"};
inline constexpr DatasetFormat kKgatFormat = {"lockstep-kgat", 1, "kg or synth-kg"};
inline constexpr DatasetFormat kEmulatorFormat = {"lockstep-emulator-data", 1,
                                                  "cice-history, cf-pair, netcdf, synth-icecolumn or synth-lorenz96"};
inline constexpr DatasetFormat kHrmFormat = {"hrm-puzzles", 1,
                                             "sudoku, maze, arc, hrm-npy, synth-sudoku or synth-maze"};
inline constexpr DatasetFormat kHarFormat = {"lockstep-har", 1, "uci-har, hapt-raw, har or synth-har"};

/// Further attributes of a prepared file, such as how its rows were chosen.
using DatasetNotes = std::vector<std::pair<std::string, H5Value>>;
/// Writes a prepared file atomically: the contents from `fill`, the format's attributes, `notes`, and checksums.
/// errors  internal: the disk is full; usage: not writable
void write_dataset(const std::filesystem::path& path, const DatasetFormat& format, const DatasetNotes& notes,
                   const std::function<void(H5File&)>& fill);

/// Whether equal neighbours are allowed in an array of offsets.
enum class Rise : std::uint8_t { strict, weak };
/// Describes why offsets do not rise from 0 to `end`: "is empty", "runs from 0 to 5, expected 0 to 4", "falls at row 2:
/// 4 after 8". Returns "" if they do.
std::string offsets_defect(std::span<const std::int64_t> offsets, std::int64_t end, Rise rise);

/// A view of a prepared file with the checks and error messages that all readers share. The file must outlive it.
///
/// Files that lockstep-prep writes are sealed (seal.hpp): the constructor compares names, shapes and attributes with
/// their checksum (once per process), each reading function its values. Files without checksums are read as they are.
///
/// errors  of every function: data, naming the file and the dataset or attribute
class DatasetFile {
 public:
  /// errors  data: no format, another format or version; changed names, shapes or attributes
  DatasetFile(const H5File& file, const DatasetFormat& format);
  const H5File& file() const { return file_; }
  /// The start of an error message: "opening data set 'PATH'" or "reading dataset 'NAME' of 'PATH'".
  const std::string& opening() const { return opening_; }
  std::string reading(const std::string& dataset) const;

  /// An integer attribute of the file, checked to lie within these bounds.
  std::int64_t size(const std::string& attribute, std::int64_t least = 0,
                    std::int64_t most = std::int64_t{1} << 40) const;
  /// Checks that a dataset exists with one of these types and this shape (-1: any extent). Returns the shape.
  std::vector<std::int64_t> expect(const std::string& dataset, const std::vector<H5Type>& types,
                                   const std::vector<std::int64_t>& shape) const;
  /// Reads a dataset of this type and shape, into memory of exactly its size. An i32 dataset may be read as i64, an f64
  /// one as f32. `check` receives each block of values while it is in the cache, with the index of its first value.
  template <class T>
  void read_into(const std::string& dataset, const std::vector<std::int64_t>& shape, std::span<T> out,
                 const std::function<void(std::int64_t first, std::span<const T> values)>& check = {}) const;
  /// The same for rows [first, first + rows) of the outermost axis; values are compared with their checksum only if
  /// these are all rows.
  template <class T>
  void read_rows(const std::string& dataset, std::int64_t first, std::int64_t rows, std::span<T> out,
                 const std::function<void(std::int64_t first, std::span<const T> values)>& check = {}) const;
  template <class T>
  std::vector<T> read(const std::string& dataset, const std::vector<std::int64_t>& shape) const;
  std::vector<std::string> read_text(const std::string& dataset, std::int64_t count) const;
  /// Compares the values of all datasets below a group with their checksums, for code that reads them from file().
  void verify(const std::string& group) const;
  /// Compares the values of one dataset with their checksum. hash  of the values; without it they are read
  void require_sum(const std::string& dataset, std::optional<std::uint64_t> hash = {}) const;
  /// Checks that each value is in 0 .. count-1. `what` names a value, `width` is the number of values in a row, `first`
  /// the number of the first value.
  template <class T>
  void require_ids(const std::string& dataset, std::span<const T> values, std::int64_t count, const char* what,
                   std::int64_t width = 1, std::int64_t first = 0) const {
    const auto bad = std::find_if(values.begin(), values.end(), [count](T v) { return v < 0 || v >= count; });
    if (bad != values.end())
      refuse_id(dataset, static_cast<std::int64_t>(*bad), (first + (bad - values.begin())) / width, count, what);
  }
  void require_offsets(const std::string& dataset, std::span<const std::int64_t> offsets, std::int64_t end,
                       Rise rise) const;

 private:
  [[noreturn]] void refuse_id(const std::string& dataset, std::int64_t value, std::int64_t row, std::int64_t count,
                              const char* what) const;
  const H5File& file_;
  bool sealed_;
  std::string opening_;
};

/// A prepared file that is open as long as something reads its rows.
struct OpenSet {
  OpenSet(H5File opened, const DatasetFormat& format) : file(std::move(opened)), set(file, format) {}
  OpenSet(const OpenSet&) = delete;
  OpenSet& operator=(const OpenSet&) = delete;
  const H5File file;
  const DatasetFile set;
};

}  // namespace lockstep
