#include "lockstep/checkpoint/checkpoint_parts.hpp"

#include <algorithm>
#include <set>

#include "checkpoint/checkpoint_format.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/seal.hpp"

namespace lockstep {

namespace fs = std::filesystem;

namespace {

constexpr const char* kShape = "sharded_shape";
constexpr const char* kType = "sharded_type";
constexpr const char* kBegin = "begin";

std::string part_contents_defect(const fs::path& path) { return contents_defect(H5File::open(path)); }

void copy_attributes(const H5File& from, H5File& to, const std::string& object) {
  for (const std::string& name : from.attributes(object)) {
    if (is_seal(name) || name == kShape || name == kType) continue;
    to.set_attribute(object, name, from.attribute(object, name));
  }
}

void copy_dataset(const H5File& from, H5File& to, const std::string& dataset) {
  const H5Info info = from.info(dataset);
  if (info.type == H5Type::text) return to.write_text(dataset, from.read_text(dataset));
  visit_numbers(info.type, [&]<class T>() {
    const std::vector<T> values = from.read<T>(dataset);
    to.write<T>(dataset, values, info.shape);
  });
}

void assemble_below(const H5File& manifest, const ShardedArrays& arrays, const std::string& group, H5File& into) {
  for (const std::string& name : manifest.list(group)) {
    const std::string object = group == "/" ? "/" + name : group + "/" + name;
    if (object == kPartList) continue;
    if (!manifest.is_group(object)) {
      copy_dataset(manifest, into, object);
    } else if (arrays.has(object)) {
      const H5Info& info = arrays.info(object);
      visit_numbers(info.type, [&]<class T>() {
        std::vector<T> values(info.elements());
        arrays.read_into<T>(object, values);
        into.write<T>(object, values, info.shape);
      });
    } else {
      into.create_group(object);
      assemble_below(manifest, arrays, object, into);
    }
    copy_attributes(manifest, into, object);
  }
}

/// The groups of a manifest that represent arrays.
void sharded_below(const H5File& manifest, const std::string& group, std::vector<std::string>& found) {
  for (const std::string& name : manifest.list(group)) {
    const std::string object = group == "/" ? "/" + name : group + "/" + name;
    if (!manifest.is_group(object)) continue;
    if (manifest.has_attribute(object, kShape)) {
      found.push_back(object);
    } else {
      sharded_below(manifest, object, found);
    }
  }
}

}  // namespace

fs::path part_file(const fs::path& manifest, const std::string& number, int part, int parts) {
  return manifest.string() + join(".", number, ".part-", part, "-of-", parts);
}

std::vector<std::int64_t> extents(const Shape& shape) {
  std::vector<std::int64_t> result;
  for (int axis = 0; axis < shape.rank(); ++axis) result.push_back(shape[axis]);
  return result;
}

namespace {
constexpr std::size_t kBlockBytes = std::size_t{64} << 20;

/// Writes an array in blocks, so that a waiting thread sees it advance and other threads come to use HDF5.
template <class T>
void write_values(H5File& file, const std::string& dataset, std::span<const T> values,
                  const std::vector<std::int64_t>& shape) {
  const std::int64_t rows = shape.empty() ? 1 : shape.front();
  if (values.size_bytes() <= kBlockBytes || rows <= 1) {
    file.write<T>(dataset, values, shape);
    file_bytes_moved += values.size_bytes();
    return;
  }
  constexpr std::size_t kFlushBytes = std::size_t{1} << 30;  // one fsync of a large file would look like a hang
  file.create_dataset(dataset, h5_type_of<T>::value, shape);
  const std::size_t per_row = values.size() / static_cast<std::size_t>(rows);
  const auto step = static_cast<std::int64_t>(std::max<std::size_t>(1, kBlockBytes / (per_row * sizeof(T))));
  std::size_t unflushed = 0;
  for (std::int64_t first = 0; first < rows; first += step) {
    const std::int64_t count = std::min(step, rows - first);
    const auto block =
        values.subspan(static_cast<std::size_t>(first) * per_row, static_cast<std::size_t>(count) * per_row);
    file.write_rows<T>(dataset, first, count, block);
    file_bytes_moved += block.size_bytes();
    unflushed += block.size_bytes();
    if (unflushed < kFlushBytes) continue;
    flush_to_disk(file.path());
    unflushed = 0;
  }
}
}  // namespace

void write_array(H5File& file, const StoredArray& array) {
  visit_stored(array.dtype, [&]<class T>() {
    const std::span values(reinterpret_cast<const T*>(array.data), static_cast<std::size_t>(array.count));
    write_values<T>(file, array.dataset, values, extents(array.shape));
  });
}

std::string write_part_file(const fs::path& path, const std::vector<StoredArray>& arrays) {
  write_sealed(path, part_contents_defect, [&](H5File& file) {
    file.set_attribute("/", "format", std::string("lockstep-checkpoint-part"));
    for (StoredArray slice : arrays) {
      if (slice.count == 0) continue;
      slice.shape = Shape{slice.count};
      write_array(file, slice);
      file.set_attribute(slice.dataset, kBegin, slice.begin);
    }
  });
  note_whole(path);
  return read_end_mark(path);
}

void write_placeholder(H5File& file, const StoredArray& array) {
  file.create_group(array.dataset);
  file.set_attribute(array.dataset, kShape, extents(array.shape));
  const H5Type type = array.dtype == DType::f64 ? H5Type::f64 : array.dtype == DType::i32 ? H5Type::i32 : H5Type::f32;
  file.set_attribute(array.dataset, kType, std::string(name(type)));
}

void write_part_list(H5File& file, const fs::path& manifest, const std::string& number,
                     const std::vector<std::string>& end_marks) {
  file.write_text(kPartList, end_marks);
  file.set_attribute(kPartList, "number", number);
  file.set_attribute(kPartList, "manifest", manifest.filename().string());
}

bool is_manifest(const H5File& file) { return file.has(kPartList); }

std::vector<fs::path> part_files(const H5File& manifest) {
  const auto parts = static_cast<int>(manifest.read_text(kPartList).size());
  const std::string number = manifest.text_attribute(kPartList, "number");
  // The parts keep their names when a user renames the manifest, unless the user renames them too.
  fs::path named = manifest.path();
  if (!fs::exists(part_file(named, number, 0, parts)) && manifest.has_attribute(kPartList, "manifest"))
    named.replace_filename(fs::path(manifest.text_attribute(kPartList, "manifest")).filename());
  std::vector<fs::path> files;
  for (int part = 0; part < parts; ++part) files.push_back(part_file(named, number, part, parts));
  return files;
}

std::string parts_defect(const H5File& manifest) {
  const std::vector<std::string> marks = manifest.read_text(kPartList);
  const std::vector<fs::path> files = part_files(manifest);
  for (std::size_t part = 0; part < files.size(); ++part) {
    const std::string name = files[part].filename().string();
    if (!fs::exists(files[part])) return join("its part '", name, "' is missing");
    if (const std::string defect = sealed_file_defect(files[part], part_contents_defect); !defect.empty())
      return join("its part '", name, "' is refused: ", defect);
    if (read_end_mark(files[part]) != marks[part]) return join("its part '", name, "' belongs to another checkpoint");
  }
  return "";
}

ShardedArrays::ShardedArrays(const H5File& manifest) : manifest_(manifest.path()), parts_(part_files(manifest)) {
  std::vector<std::string> names;
  sharded_below(manifest, "/", names);
  for (const std::string& array : names) {
    const std::string type = manifest.text_attribute(array, kType);
    const H5Type stored = type == name(H5Type::f64)   ? H5Type::f64
                          : type == name(H5Type::i32) ? H5Type::i32
                                                      : H5Type::f32;
    arrays_[array].info = {stored, manifest.int_list(array, kShape)};
  }
  for (std::size_t part = 0; part < parts_.size(); ++part) {
    const H5File file = H5File::open(parts_[part]);
    for (const std::string& array : file.datasets_under("/")) {
      const auto known = arrays_.find(array);
      if (known == arrays_.end()) continue;
      Entry& entry = known->second;
      const std::int64_t begin = file.int_attribute(array, kBegin);
      const std::int64_t expected = entry.slices.empty() ? 0 : entry.slices.back().begin + entry.slices.back().count;
      require_data(begin == expected, "checkpoint part ", parts_[part], ": '", array, "' begins at element ", begin,
                   ", where ", expected, " was expected");
      entry.slices.push_back({part, begin, file.info(array).elements()});
    }
  }
  for (const auto& [array, entry] : arrays_) {
    const std::int64_t found = entry.slices.empty() ? 0 : entry.slices.back().begin + entry.slices.back().count;
    require_data(found == entry.info.elements(), "checkpoint ", manifest_, ": its parts hold ", found, " elements of '",
                 array, "' instead of ", entry.info.elements());
  }
}

const ShardedArrays::Entry& ShardedArrays::find(const std::string& array) const {
  const auto found = arrays_.find(array);
  require_data(found != arrays_.end(), "checkpoint ", manifest_, ": no array '", array, "'");
  return found->second;
}

std::vector<std::string> ShardedArrays::under(const std::string& group) const {
  const std::string prefix = group == "/" ? group : group + "/";
  std::vector<std::string> names;
  for (const auto& [array, entry] : arrays_)
    if (array.starts_with(prefix)) names.push_back(array);
  return names;
}

template <class T>
void ShardedArrays::read_into(const std::string& array, std::span<T> out) const {
  const Entry& entry = find(array);
  require_data(static_cast<std::int64_t>(out.size()) == entry.info.elements(), "checkpoint ", manifest_, ": '", array,
               "' has ", entry.info.elements(), " elements, not ", out.size());
  for (const Slice& slice : entry.slices) {
    H5File::open(parts_[slice.part]).read_into<T>(array, out.subspan(slice.begin, slice.count));
    file_bytes_moved += static_cast<std::uint64_t>(slice.count) * sizeof(T);
  }
}
template void ShardedArrays::read_into(const std::string&, std::span<std::uint8_t>) const;
template void ShardedArrays::read_into(const std::string&, std::span<std::int32_t>) const;
template void ShardedArrays::read_into(const std::string&, std::span<std::int64_t>) const;
template void ShardedArrays::read_into(const std::string&, std::span<float>) const;
template void ShardedArrays::read_into(const std::string&, std::span<double>) const;

void assemble(const H5File& manifest, H5File& into) {
  copy_attributes(manifest, into, "/");
  assemble_below(manifest, ShardedArrays(manifest), "/", into);
}

void remove_orphaned_parts(const fs::path& folder) {
  std::vector<fs::path> found, files;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(folder, failure)) {
    const bool part = entry.path().filename().string().find(".part-") != std::string::npos;
    if (part || entry.path().extension() == ".h5") (part ? found : files).push_back(entry.path());
  }
  if (found.empty()) return;
  std::set<fs::path> wanted;
  std::vector<std::string> damaged;  // names of damaged manifests, whose parts may still be useful
  for (const fs::path& path : files) {
    if (const std::string defect = known_whole(path) ? "" : end_mark_defect(path); !defect.empty()) {
      damaged.push_back(path.filename().string() + ".");
      continue;
    }
    try {
      const H5File file = H5File::open(path);
      if (!is_manifest(file)) continue;
      for (fs::path& part : part_files(file)) wanted.insert(std::move(part));
    } catch (const Error&) {
      damaged.push_back(path.filename().string() + ".");
    }
  }
  for (const fs::path& path : found) {
    const std::string name = path.filename().string();
    const bool kept = std::ranges::any_of(damaged, [&](const auto& d) { return name.starts_with(d); });
    std::error_code ignored;
    if (!kept && !wanted.contains(path)) fs::remove(path, ignored);
  }
}

}  // namespace lockstep
