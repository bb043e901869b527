#include "train/checkpoint_parts.hpp"

#include <algorithm>
#include <set>

#include "lockstep/base/error.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/seal.hpp"

namespace lockstep {

namespace fs = std::filesystem;

namespace {

constexpr const char* kParts = "/parts";
constexpr const char* kShape = "sharded_shape";
constexpr const char* kType = "sharded_type";
constexpr const char* kBegin = "begin";

/// The elements [begin, end) of a part.
FlatRange share_of(std::int64_t elements, int part, int parts) {
  return {elements * part / parts, elements * (part + 1) / parts};
}

void copy_attributes(const H5File& from, H5File& to, const std::string& object) {
  for (const std::string& name : from.attributes(object)) {
    if (is_seal(name) || name == kShape || name == kType) continue;
    to.set_attribute(object, name, from.attribute(object, name));
  }
}

void copy_dataset(const H5File& from, H5File& to, const std::string& dataset) {
  const H5Info info = from.info(dataset);
  const auto copy = [&]<class T>() {
    const std::vector<T> values = from.read<T>(dataset);
    to.write<T>(dataset, values, info.shape);
  };
  switch (info.type) {
    case H5Type::u8:
      return copy.template operator()<std::uint8_t>();
    case H5Type::i32:
      return copy.template operator()<std::int32_t>();
    case H5Type::i64:
      return copy.template operator()<std::int64_t>();
    case H5Type::f32:
      return copy.template operator()<float>();
    case H5Type::f64:
      return copy.template operator()<double>();
    case H5Type::text:
      return to.write_text(dataset, from.read_text(dataset));
  }
}

/// Concatenates the slices of an array, which the parts hold in order and without gaps.
template <class T>
void gather_array(const H5File& manifest, const std::vector<H5File>& parts, const std::string& dataset, H5File& into) {
  const auto shape = manifest.int_list(dataset, kShape);
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  std::vector<T> values;
  for (const H5File& part : parts) {
    if (!part.has(dataset)) continue;
    const std::int64_t begin = part.int_attribute(dataset, kBegin);
    require_data(begin == static_cast<std::int64_t>(values.size()), "checkpoint part ", part.path(), ": '", dataset,
                 "' begins at element ", begin, ", where ", values.size(), " was expected");
    const std::vector<T> slice = part.read<T>(dataset);
    values.insert(values.end(), slice.begin(), slice.end());
  }
  require_data(static_cast<std::int64_t>(values.size()) == count, "checkpoint ", manifest.path(), ": its parts hold ",
               values.size(), " elements of '", dataset, "' instead of ", count);
  into.write<T>(dataset, values, shape);
}

void assemble_below(const H5File& manifest, const std::vector<H5File>& parts, const std::string& group, H5File& into) {
  for (const std::string& name : manifest.list(group)) {
    const std::string object = group == "/" ? "/" + name : group + "/" + name;
    if (object == kParts) continue;
    if (!manifest.is_group(object)) {
      copy_dataset(manifest, into, object);
    } else if (manifest.has_attribute(object, kShape)) {
      const std::string type = manifest.text_attribute(object, kType);
      const auto gather = [&]<class T>() { gather_array<T>(manifest, parts, object, into); };
      if (type == lockstep::name(H5Type::f64))
        gather.template operator()<double>();
      else if (type == lockstep::name(H5Type::i32))
        gather.template operator()<std::int32_t>();
      else
        gather.template operator()<float>();
    } else {
      into.create_group(object);
      assemble_below(manifest, parts, object, into);
    }
    copy_attributes(manifest, into, object);
  }
}

}  // namespace

fs::path part_file(const fs::path& manifest, const std::string& number, int part, int parts) {
  return manifest.string() + join(".", number, ".part-", part, "-of-", parts);
}

std::string write_part(const fs::path& path, const std::vector<StoredArray>& arrays, int part, int parts) {
  std::int64_t elements = 0;
  for (const StoredArray& a : arrays) elements += a.value.size();
  const FlatRange mine = share_of(elements, part, parts);
  std::string mark;
  write_atomically(path, [&](const fs::path& temporary) {
    H5File file = H5File::create(temporary);
    file.set_attribute("/", "format", std::string("lockstep-checkpoint-part"));
    std::int64_t first = 0;
    for (const StoredArray& a : arrays) {
      const std::int64_t begin = std::clamp(mine.begin - first, std::int64_t{0}, a.value.size());
      const std::int64_t end = std::clamp(mine.end - first, std::int64_t{0}, a.value.size());
      first += a.value.size();
      if (begin == end) continue;
      const HostView host(a.value);
      visit_stored(a.value.dtype(), [&]<class T>() {
        file.write<T>(a.dataset,
                      std::span<const T>(host->span<T>())
                          .subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)),
                      {end - begin});
      });
      file.set_attribute(a.dataset, kBegin, begin);
    }
    seal_contents(file);
    file.close();
    append_end_mark(temporary);
    const std::string defect = end_mark_defect(temporary);
    require(defect.empty(), "writing ", path, ": the file does not read back: ", defect);
    mark = read_end_mark(temporary);
  });
  return mark;
}

void write_placeholder(H5File& file, const StoredArray& array) {
  file.create_group(array.dataset);
  std::vector<std::int64_t> shape;
  for (int axis = 0; axis < array.value.shape().rank(); ++axis) shape.push_back(array.value.shape()[axis]);
  file.set_attribute(array.dataset, kShape, shape);
  const DType dtype = array.value.dtype();
  const H5Type type = dtype == DType::f64 ? H5Type::f64 : dtype == DType::i32 ? H5Type::i32 : H5Type::f32;
  file.set_attribute(array.dataset, kType, std::string(name(type)));
}

void write_part_list(H5File& file, const fs::path& manifest, const std::string& number,
                     const std::vector<std::string>& end_marks) {
  file.write_text(kParts, end_marks);
  file.set_attribute(kParts, "number", number);
  file.set_attribute(kParts, "manifest", manifest.filename().string());
}

bool is_manifest(const H5File& file) { return file.has(kParts); }

std::vector<fs::path> part_files(const H5File& manifest) {
  const auto parts = static_cast<int>(manifest.read_text(kParts).size());
  const std::string number = manifest.text_attribute(kParts, "number");
  // The parts keep their names when a user renames the manifest, unless the user renames them too.
  fs::path named = manifest.path();
  if (!fs::exists(part_file(named, number, 0, parts)) && manifest.has_attribute(kParts, "manifest"))
    named.replace_filename(fs::path(manifest.text_attribute(kParts, "manifest")).filename());
  std::vector<fs::path> files;
  for (int part = 0; part < parts; ++part) files.push_back(part_file(named, number, part, parts));
  return files;
}

std::string parts_defect(const H5File& manifest) {
  const std::vector<std::string> marks = manifest.read_text(kParts);
  const std::vector<fs::path> files = part_files(manifest);
  for (std::size_t part = 0; part < files.size(); ++part) {
    const std::string name = files[part].filename().string();
    if (!fs::exists(files[part])) return join("its part '", name, "' is missing");
    if (const std::string defect = end_mark_defect(files[part]); !defect.empty())
      return join("its part '", name, "' is refused: ", defect);
    if (read_end_mark(files[part]) != marks[part]) return join("its part '", name, "' belongs to another checkpoint");
    if (const std::string defect = contents_defect(H5File::open(files[part])); !defect.empty())
      return join("its part '", name, "' is refused: ", defect);
  }
  return "";
}

void assemble(const H5File& manifest, H5File& into) {
  std::vector<H5File> parts;
  for (const fs::path& file : part_files(manifest)) parts.push_back(H5File::open(file));
  copy_attributes(manifest, into, "/");
  assemble_below(manifest, parts, "/", into);
}

void remove_orphaned_parts(const fs::path& folder) {
  std::set<fs::path> wanted;
  std::vector<fs::path> found;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(folder, failure)) {
    const fs::path& path = entry.path();
    if (path.filename().string().find(".part-") != std::string::npos) {
      found.push_back(path);
    } else if (path.extension() == ".h5") {
      try {
        const H5File file = H5File::open(path);
        if (!is_manifest(file)) continue;
        for (fs::path& part : part_files(file)) wanted.insert(std::move(part));
      } catch (const Error&) {
        return;  // it may be a damaged manifest whose parts are still useful
      }
    }
  }
  for (const fs::path& path : found) {
    std::error_code ignored;
    if (!wanted.contains(path)) fs::remove(path, ignored);
  }
}

}  // namespace lockstep
