#include <algorithm>

#include "element_types.hpp"
#include "h5_internal.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/seal.hpp"

namespace lockstep {

namespace {
/// Creates a group and its parents one by one, because groups that the library creates implicitly have time stamps.
/// `handle` is an H5File::Handle.
void make_groups(auto& handle, const H5File& owner, const std::string& group) {
  const h5::Id creation = h5::plain_object(H5P_GROUP_CREATE);
  for (std::size_t end = 0; end < group.size();) {
    end = std::min(group.find('/', end + 1), group.size());
    const std::string part = group.substr(0, end);
    if (part.size() <= 1 || handle.written->contains(part)) continue;
    h5::Id id(H5Gcreate2(handle.file, part.c_str(), H5P_DEFAULT, creation, H5P_DEFAULT), H5Gclose);
    require(id.valid(), "creating group ", h5::quoted(part, owner), ": ", h5::kReason);
    (*handle.written)[part].id = std::move(id);
  }
}

h5::Object& new_dataset(auto& handle, const H5File& owner, const std::string& dataset, hid_t type, const H5Info& info,
                        const H5Layout& layout) {
  const std::string what = h5::quoted(dataset, owner), path = h5::absolute(dataset);
  const std::vector<std::int64_t>& shape = info.shape;
  require(!handle.written->contains(path), "writing ", what, ": it exists already");
  const std::vector<hsize_t> dims(shape.begin(), shape.end());
  const h5::Id space(
      shape.empty() ? H5Screate(H5S_SCALAR) : H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr),
      H5Sclose);
  constexpr std::int64_t kSmall = 1 << 20;  // some network file systems are slow to report free space
  const std::int64_t size_bytes = h5::count(shape, what) * static_cast<std::int64_t>(H5Tget_size(type));
  if (layout.deflate == 0 && size_bytes > kSmall) require_space(owner.path(), size_bytes);
  make_groups(handle, owner, path.substr(0, path.rfind('/')));
  const h5::Id creation = h5::plain_object(H5P_DATASET_CREATE);
  H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY);
  require(layout.deflate == 0 || !layout.chunk.empty(), "writing ", what, ": compression needs a chunk shape");
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  if (!layout.chunk.empty() && !empty) {
    require(layout.chunk.size() == shape.size(), "writing ", what, ": a chunk of ", layout.chunk.size(),
            " axes for data of ", shape.size());
    std::vector<hsize_t> chunk(shape.size());
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      require(layout.chunk[axis] > 0, "writing ", what, ": chunk extents must be > 0");
      chunk[axis] = static_cast<hsize_t>(std::min(layout.chunk[axis], shape[axis]));
    }
    H5Pset_chunk(creation, static_cast<int>(chunk.size()), chunk.data());
    if (layout.deflate > 0) {
      H5Pset_shuffle(creation);
      H5Pset_deflate(creation, static_cast<unsigned>(layout.deflate));
      H5Pset_alloc_time(creation, H5D_ALLOC_TIME_INCR);
    }
  }
  h5::Id id(H5Dcreate2(handle.file, path.c_str(), type, space, H5P_DEFAULT, creation, H5P_DEFAULT), H5Dclose);
  require(id.valid(), "creating dataset ", what, ": ", h5::kReason);
  h5::Object& object = (*handle.written)[path];
  object.id = std::move(id);
  object.info = info;
  return object;
}

/// A dataset with all of its values, of this type in memory.
h5::Object& write_new(auto& handle, const H5File& owner, const std::string& dataset, hid_t type, const H5Info& info,
                      const H5Layout& layout, const void* values) {
  h5::Object& object = new_dataset(handle, owner, dataset, type, info, layout);
  const bool done = info.elements() == 0 || H5Dwrite(object.id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0;
  require(done, "writing ", h5::quoted(dataset, owner), ": ", h5::kReason);
  object.rows = info.shape.empty() ? 1 : info.shape.front();
  return object;
}
}  // namespace

template <class T>
void H5File::write(const std::string& dataset, std::span<const T> values, const std::vector<std::int64_t>& shape,
                   const H5Layout& layout) {
  const h5::LibraryLock lock;
  const std::string what = h5::quoted(dataset, *this);
  require(h5::count(shape, what) == std::ssize(values), "writing ", what, ": ", values.size(), " values for shape ",
          shape_text(shape));
  constexpr H5Type kType = h5_type_of<T>::value;
  write_new(*handle_, *this, dataset, h5::native_type(kType), {kType, shape}, layout, values.data())
      .numbers.add(values.data(), values.size_bytes());
}

void H5File::create_dataset(const std::string& dataset, H5Type type, const std::vector<std::int64_t>& shape,
                            const H5Layout& layout) {
  const h5::LibraryLock lock;
  require(type != H5Type::text, "creating ", h5::quoted(dataset, *this), ": use create_text for strings");
  new_dataset(*handle_, *this, dataset, h5::native_type(type), {type, shape}, layout);
}

void H5File::create_text(const std::string& dataset, const std::vector<std::int64_t>& shape, std::size_t longest) {
  const h5::LibraryLock lock;
  new_dataset(*handle_, *this, dataset, h5::string_type(longest), {H5Type::text, shape}, {});
}

namespace {
h5::Object& known_dataset(auto& handle, const H5File& owner, const std::string& dataset) {
  const auto known = handle.written->find(h5::absolute(dataset));
  require(known != handle.written->end() && known->second.info, "writing ", h5::quoted(dataset, owner),
          ": there is no such dataset");
  return known->second;
}

/// Writes rows [first, first + count) of a dataset, `size` values at `values` of a type in memory.
void write_part(hid_t id, const std::string& what, std::int64_t first, std::int64_t count, hid_t type, std::size_t size,
                const void* values) {
  const h5::Id file_space(H5Dget_space(id), H5Sclose);
  std::vector<std::int64_t> part = h5::extents(file_space, what);
  require(!part.empty() && first >= 0 && count >= 0 && first <= part[0] && count <= part[0] - first, "writing rows [",
          first, ", ", first + count, ") of ", what, ": its shape is ", shape_text(part));
  part[0] = count;
  require(h5::count(part, what) == static_cast<std::int64_t>(size), "writing ", count, " rows of ", what, ": ", size,
          " values for shape ", shape_text(part));
  if (size == 0) return;
  std::vector<hsize_t> start(part.size(), 0), extent(part.begin(), part.end());
  start[0] = static_cast<hsize_t>(first);
  const h5::Id memory_space(H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr), H5Sclose);
  const bool done =
      H5Sselect_hyperslab(file_space, H5S_SELECT_SET, start.data(), nullptr, extent.data(), nullptr) >= 0 &&
      H5Dwrite(id, type, memory_space, file_space, H5P_DEFAULT, values) >= 0;
  require(done, "writing ", what, ": ", h5::kReason);
}
}  // namespace

template <class T>
void H5File::write_rows(const std::string& dataset, std::int64_t first, std::int64_t count, std::span<const T> values) {
  const h5::LibraryLock lock;
  h5::Object& object = known_dataset(*handle_, *this, dataset);
  write_part(object.id, h5::quoted(dataset, *this), first, count, h5::native_type(h5_type_of<T>::value), values.size(),
             values.data());
  if (object.follows(first, count)) object.numbers.add(values.data(), values.size_bytes());
}

void H5File::write_text_rows(const std::string& dataset, std::int64_t first, std::int64_t count,
                             std::span<const std::string> values) {
  const h5::LibraryLock lock;
  h5::Object& object = known_dataset(*handle_, *this, dataset);
  const h5::Id stored(H5Dget_type(object.id), H5Tclose);
  const std::size_t width = H5Tget_size(stored);
  for (const std::string& value : values)
    require(value.size() <= width, "writing ", h5::quoted(dataset, *this), ": a string of ", value.size(),
            " bytes, where strings have at most ", width);
  write_part(object.id, h5::quoted(dataset, *this), first, count, h5::string_type(width), values.size(),
             h5::padded(values, width).data());
  if (object.follows(first, count)) object.texts = hash_texts(values, object.texts);
}

void H5File::write_text(const std::string& dataset, const std::vector<std::string>& values) {
  const h5::LibraryLock lock;
  const std::size_t width = h5::longest(values);
  write_new(*handle_, *this, dataset, h5::string_type(width), {H5Type::text, {std::ssize(values)}}, {},
            h5::padded(values, width).data())
      .texts = hash_texts(values);
}

void H5File::create_group(const std::string& group) {
  const h5::LibraryLock lock;
  make_groups(*handle_, *this, h5::absolute(group));
}

using Shape = std::vector<std::int64_t>;
#define INSTANTIATE(T)                                                                                \
  template void H5File::write(const std::string&, std::span<const T>, const Shape&, const H5Layout&); \
  template void H5File::write_rows(const std::string&, std::int64_t, std::int64_t, std::span<const T>);
LOCKSTEP_EACH_ELEMENT(INSTANTIATE)
#undef INSTANTIATE

}  // namespace lockstep
