#pragma once
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "lockstep/io/dataset_file.hpp"
#include "prep/problems.hpp"

namespace lockstep::prep {

using Extents = std::vector<std::int64_t>;

/// Chunks of whole rows: at most `rows` of them, or of about `elements` elements. Contiguous if both are 0.
struct Storage {
  std::int64_t rows = 0, elements = 0;
  int deflate = 0;
  H5Layout layout(const Extents& shape) const;
};

/// The attributes of an object that are not known.
DatasetNotes notes_of(const H5File& file, const std::string& object, const std::set<std::string>& known = {});

/// A prepared file that is written or read. A function fields(io, set) describes a format for both directions: it names
/// each attribute ("n", or "/group/n") and dataset with its member of the set, sizes first.
///
/// errors  when reading: data, naming file and dataset or attribute: it is missing, of another type or shape
class SetFile {
 public:
  SetFile(H5File& out, int deflate) : out_(&out), deflate_(deflate) {}
  /// Values out of range are added to `problems`; null: they are not looked for.
  SetFile(const DatasetFile& in, Problems* problems) : in_(&in), problems_(problems) {}
  bool reads() const { return in_ != nullptr; }
  const DatasetFile& in() const { return *in_; }
  H5File& out() { return *out_; }
  int deflate() const { return deflate_; }

  /// A number, a text, or a list of `count` of them (-1: any number).
  template <class T>
  void attribute(const std::string& name, T& value, std::int64_t count = -1) {
    using Stored = std::conditional_t<std::is_integral_v<T>, std::int64_t, T>;
    H5Value stored = static_cast<Stored>(value);
    transfer(name, stored, count);
    if (reads()) value = static_cast<T>(std::get<Stored>(stored));
  }
  /// A list that is absent if it is empty.
  template <class T>
  void optional(const std::string& name, std::vector<T>& values, std::int64_t count = -1) {
    if (reads() ? in_->file().has_attribute("/", name) : !values.empty()) attribute(name, values, count);
  }
  /// Whether the file has an attribute that older versions did not write.
  bool has(const std::string& name) const { return !reads() || in_->file().has_attribute("/", name); }
  void size(const std::string& name, std::int64_t& value, std::int64_t least = 0,
            std::int64_t most = std::int64_t{1} << 40);
  /// A size that others determine.
  void derived(const std::string& name, std::int64_t value);
  /// An enumerator or bool, stored as one of these names.
  template <class T>
  void choice(const std::string& name, T& value, const std::vector<std::string>& names) {
    const std::size_t found = chosen(name, static_cast<std::size_t>(value), names);
    if (reads()) value = static_cast<T>(found);
  }
  /// Whether the file has a dataset or group; if it is written, whether it is `wanted`.
  bool part(const std::string& object, bool wanted) const { return reads() ? in_->file().has(object) : wanted; }
  /// A dataset of this shape (-1: any extent), and the ranges of its columns or one for all.
  template <class T>
  void array(const std::string& dataset, std::vector<T>& values, Extents shape,
             const std::vector<Range>& columns = {}) {
    if (reads()) values = in_->read<T>(dataset, shape);
    if (problems_ != nullptr) check_ranges(dataset, values, columns, *problems_);
    if (shape[0] < 0) shape[0] = std::ssize(values);
    if (out_ != nullptr) out_->write<T>(dataset, values, shape, storage_.layout(shape));
  }
  /// A dataset of `count` offsets that rise from 0 to `end`.
  void offsets(const std::string& dataset, std::vector<std::int64_t>& values, std::int64_t count, std::int64_t end,
               Rise rise);
  void text(const std::string& dataset, std::vector<std::string>& values, std::int64_t count);
  /// How the arrays from now on are stored.
  void storage(const Storage& storage) { storage_ = storage; }
  /// Writes the attributes of the file, which otherwise follow its datasets.
  void put_attributes();
  /// The attributes of the file that fields() has not named.
  DatasetNotes notes() const { return notes_of(in_->file(), "/", known_); }

 private:
  void transfer(const std::string& name, H5Value& value, std::int64_t count);
  std::size_t chosen(const std::string& name, std::size_t value, const std::vector<std::string>& names);

  const DatasetFile* in_ = nullptr;
  H5File* out_ = nullptr;
  int deflate_ = 0;
  Problems* problems_ = nullptr;
  Storage storage_;
  DatasetNotes attributes_;
  std::set<std::string> known_ = {"format", "version"};
};

template <class Set>
using Fields = void (*)(SetFile& io, Set& set);
template <class Set>
void write_set(const std::filesystem::path& path, const DatasetFormat& format, const Set& set, Fields<Set> fields,
               int deflate = 0) {
  write_dataset(path, format, set.notes, [&](H5File& file) {
    SetFile io(file, deflate);
    fields(io, const_cast<Set&>(set));  // it is only read
    io.put_attributes();
  });
}
template <class Set>
Set read_set(const H5File& file, const DatasetFormat& format, Problems* problems, Fields<Set> fields) {
  const DatasetFile stored(file, format);
  SetFile io(stored, problems);
  Set set;
  fields(io, set);
  set.notes = io.notes();
  return set;
}

}  // namespace lockstep::prep
