#include "lockstep/io/dataset_file.hpp"

#include <chrono>
#include <system_error>
#include <type_traits>

#include "element_types.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/file_kind.hpp"
#include "lockstep/io/seal.hpp"

namespace lockstep {

namespace {
constexpr const char* kRebuild = "; rebuild it with lockstep-prep";
constexpr const char* kDamaged =
    "; the disk, a copy or another program has changed the file: copy it again, or rebuild it with lockstep-prep";

/// Negative extents print as "any".
std::string wanted_text(const std::vector<std::int64_t>& shape) {
  return "(" + listed(shape, ", ", [](auto extent) { return extent < 0 ? "any" : std::to_string(extent); }) + ")";
}

/// Calls `compare`, which throws if a part of a file is damaged, once per process as long as the file is the same.
void compare_once(const H5File& file, const std::string& part, const std::function<void()>& compare) {
  if (known_whole(file.path(), part)) return;
  compare();
  // Another change in the same tick of the clock would leave the time of the file as it is.
  std::error_code none;
  const auto changed = std::filesystem::last_write_time(file.path(), none);
  if (changed < std::filesystem::file_time_type::clock::now() - std::chrono::seconds(1)) note_whole(file.path(), part);
}
}  // namespace

void write_dataset(const std::filesystem::path& path, const DatasetFormat& format, const DatasetNotes& notes,
                   const std::function<void(H5File&)>& fill) {
  require_replaceable(path, FileKind::data_set, {});
  write_atomically(path, [&](const std::filesystem::path& temporary) {
    H5File file = H5File::create(temporary);
    fill(file);
    file.set_attribute("/", "format", std::string(format.name));
    file.set_attribute("/", "version", format.version);
    for (const auto& [name, value] : notes) file.set_attribute("/", name, value);
    seal_contents(file);
    file.close();
  });
}

std::string offsets_defect(std::span<const std::int64_t> offsets, std::int64_t end, Rise rise) {
  if (offsets.empty()) return "is empty";
  const auto fall = rise == Rise::strict ? std::ranges::adjacent_find(offsets, std::greater_equal<>())
                                         : std::ranges::adjacent_find(offsets, std::greater<>());
  if (fall != offsets.end())
    return join(rise == Rise::strict ? "does not rise" : "falls", " at row ", fall - offsets.begin() + 1, ": ", fall[1],
                " after ", fall[0]);
  if (offsets.front() != 0 || offsets.back() != end)
    return join("runs from ", offsets.front(), " to ", offsets.back(), ", expected 0 to ", end);
  return "";
}

DatasetFile::DatasetFile(const H5File& file, const DatasetFormat& format)
    : file_(file), sealed_(is_sealed(file)), opening_("opening data set '" + file.path().string() + "'") {
  const auto need = [&](const char* attribute) {
    require_data(file.has_attribute("/", attribute), opening_, ": no attribute '", attribute,
                 "'; it is not a prepared data set, make one with lockstep-prep ", format.sources);
  };
  need("format");
  const std::string found = file.text_attribute("/", "format");
  require_data(found == format.name, opening_, ": its format is '", found, "', expected '", format.name,
               "'; make one with lockstep-prep ", format.sources);
  need("version");
  const std::int64_t version = file.int_attribute("/", "version");
  require_data(version == format.version, opening_, ": version ", version, ", this program reads version ",
               format.version, kRebuild);
  if (!sealed_) return;
  compare_once(file, "structure", [&] {
    const std::string defect = structure_defect(file);
    require_data(defect.empty(), opening_, ": ", defect, kDamaged);
  });
}

std::string DatasetFile::reading(const std::string& dataset) const {
  return join("reading dataset '", dataset, "' of '", file_.path().string(), "'");
}

std::int64_t DatasetFile::size(const std::string& attribute, std::int64_t least, std::int64_t most) const {
  const std::int64_t value = file_.int_attribute("/", attribute);
  require_data(value >= least && value <= most, opening_, ": attribute ", attribute, " = ", value, ": must be ", least,
               " .. ", most, kRebuild);
  return value;
}

std::vector<std::int64_t> DatasetFile::expect(const std::string& dataset, const std::vector<H5Type>& types,
                                              const std::vector<std::int64_t>& shape) const {
  require_data(file_.has(dataset), reading(dataset), ": no such dataset", kRebuild);
  const H5Info info = file_.info(dataset);
  require_data(std::ranges::find(types, info.type) != types.end(), reading(dataset), ": elements are ", name(info.type),
               ", expected ", name(types.front()), kRebuild);
  const bool fits =
      std::ranges::equal(info.shape, shape, [](auto found, auto wanted) { return wanted < 0 || found == wanted; });
  require_data(fits, reading(dataset), ": the shape is ", shape_text(info.shape), ", expected ", wanted_text(shape),
               kRebuild);
  return info.shape;
}

template <class T>
void DatasetFile::read_into(const std::string& dataset, const std::vector<std::int64_t>& shape, std::span<T> out,
                            const std::function<void(std::int64_t first, std::span<const T> values)>& check) const {
  using Other = std::conditional_t<std::is_same_v<T, std::int64_t>, std::int32_t,
                                   std::conditional_t<std::is_same_v<T, float>, double, T>>;
  expect(dataset, {h5_type_of<T>::value, h5_type_of<Other>::value}, shape);
  const H5Info info = file_.info(dataset);
  const auto size = static_cast<std::size_t>(info.elements());
  require(size == out.size(), reading(dataset), ": ", size, " elements do not fit memory for ", out.size());
  Hash64 hash;
  const auto read = [&]<class Stored>() {
    file_.read_blocks<Stored>(dataset, [&](std::int64_t first, std::span<const Stored> values) {
      hash.add(values.data(), values.size_bytes());
      const std::span<T> part = out.subspan(first, values.size());
      std::transform(values.begin(), values.end(), part.begin(), [](Stored v) { return static_cast<T>(v); });
      if (check) check(first, part);
    });
  };
  if (info.type == h5_type_of<T>::value) {  // NOLINT(bugprone-branch-clone): the types differ
    read.template operator()<T>();
  } else {
    read.template operator()<Other>();
  }
  require_sum(dataset, hash.value());
}

template <class T>
void DatasetFile::read_rows(const std::string& dataset, std::int64_t first, std::int64_t rows, std::span<T> out,
                            const std::function<void(std::int64_t first, std::span<const T> values)>& check) const {
  const std::vector<std::int64_t> shape = file_.info(dataset).shape;
  if (rows == shape.front()) return read_into(dataset, shape, out, check);
  file_.read_rows<T>(dataset, first, rows, out);
  if (check && rows > 0) check(first * (std::ssize(out) / rows), out);
}

template <class T>
std::vector<T> DatasetFile::read(const std::string& dataset, const std::vector<std::int64_t>& shape) const {
  expect(dataset, {h5_type_of<T>::value}, shape);
  std::vector<T> values(file_.info(dataset).elements());
  read_into<T>(dataset, shape, values);
  return values;
}

std::vector<std::string> DatasetFile::read_text(const std::string& dataset, std::int64_t count) const {
  expect(dataset, {H5Type::text}, {count});
  std::vector<std::string> texts = file_.read_text(dataset);
  require_sum(dataset, hash_texts(texts));
  return texts;
}

void DatasetFile::verify(const std::string& group) const {
  compare_once(file_, group, [&] {
    for (const std::string& dataset : file_.datasets_under(group)) require_sum(dataset, {});
  });
}

void DatasetFile::require_sum(const std::string& dataset, std::optional<std::uint64_t> hash) const {
  const std::string defect = sealed_ ? values_defect(file_, dataset, hash) : "";
  require_data(defect.empty(), opening_, ": ", defect, kDamaged);
}

void DatasetFile::require_offsets(const std::string& dataset, std::span<const std::int64_t> offsets, std::int64_t end,
                                  Rise rise) const {
  const std::string defect = offsets_defect(offsets, end, rise);
  require_data(defect.empty(), reading(dataset), ": it ", defect, kRebuild);
}

void DatasetFile::refuse_id(const std::string& dataset, std::int64_t value, std::int64_t row, std::int64_t count,
                            const char* what) const {
  throw Error(Fault::data,
              join(reading(dataset), ": ", what, " ", value, " in row ", row, " is not in 0 .. ", count - 1, kRebuild));
}

using Extents = std::vector<std::int64_t>;
template <class T>
using Visit = std::function<void(std::int64_t, std::span<const T>)>;
#define INSTANTIATE(T)                                                                                                \
  template void DatasetFile::read_into(const std::string&, const Extents&, std::span<T>, const Visit<T>&) const;      \
  template void DatasetFile::read_rows(const std::string&, std::int64_t, std::int64_t, std::span<T>, const Visit<T>&) \
      const;                                                                                                          \
  template std::vector<T> DatasetFile::read(const std::string&, const Extents&) const;
LOCKSTEP_EACH_ELEMENT(INSTANTIATE)
#undef INSTANTIATE

}  // namespace lockstep
