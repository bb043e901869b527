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
  const h5::Id creation(H5Pcreate(H5P_GROUP_CREATE), H5Pclose);
  H5Pset_obj_track_times(creation, false);
  for (std::size_t end = 0; end < group.size();) {
    end = std::min(group.find('/', end + 1), group.size());
    const std::string part = group.substr(0, end);
    if (part.size() <= 1 || handle.written->contains(part)) continue;
    const h5::Id id(H5Gcreate2(handle.file, part.c_str(), H5P_DEFAULT, creation, H5P_DEFAULT), H5Gclose);
    require(id.valid(), "creating group ", h5::quoted(part, owner), ": ", h5::kReason);
    handle.written->try_emplace(part);
  }
}

h5::Id new_dataset(auto& handle, const H5File& owner, const std::string& dataset, hid_t type, const H5Info& info,
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
  const h5::Id creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_obj_track_times(creation, false);
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
  (*handle.written)[path].info = info;
  return id;
}

void finish(h5::Id& id, const std::string& what) { require(id.reset(), "writing ", what, ": ", h5::kReason); }
}  // namespace

template <class T>
void H5File::write(const std::string& dataset, std::span<const T> values, const std::vector<std::int64_t>& shape,
                   const H5Layout& layout) {
  const h5::LibraryLock lock;
  const std::string what = h5::quoted(dataset, *this);
  require(h5::count(shape, what) == std::ssize(values), "writing ", what, ": ", values.size(), " values for shape ",
          shape_text(shape));
  const hid_t type = h5::native_type(h5_type_of<T>::value);
  h5::Id id = new_dataset(*handle_, *this, dataset, type, {h5_type_of<T>::value, shape}, layout);
  require(values.empty() || H5Dwrite(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0, "writing ", what,
          ": ", h5::kReason);
  finish(id, what);
  h5::Object& object = handle_->written->at(h5::absolute(dataset));
  if (object.follows(0, shape.empty() ? 1 : shape.front())) object.numbers.add(values.data(), values.size_bytes());
}

void H5File::create_dataset(const std::string& dataset, H5Type type, const std::vector<std::int64_t>& shape,
                            const H5Layout& layout) {
  const h5::LibraryLock lock;
  require(type != H5Type::text, "creating ", h5::quoted(dataset, *this), ": use create_text for strings");
  h5::Id id = new_dataset(*handle_, *this, dataset, h5::native_type(type), {type, shape}, layout);
  finish(id, h5::quoted(dataset, *this));
}

void H5File::create_text(const std::string& dataset, const std::vector<std::int64_t>& shape, std::size_t longest) {
  const h5::LibraryLock lock;
  const h5::Id type = h5::string_type(longest);
  h5::Id id = new_dataset(*handle_, *this, dataset, type, {H5Type::text, shape}, {});
  finish(id, h5::quoted(dataset, *this));
}

namespace {
/// Writes rows [first, first + count) of a dataset, `size` values at `values` of a type in memory.
void write_part(hid_t file, const H5File& owner, const std::string& dataset, std::int64_t first, std::int64_t count,
                hid_t type, std::size_t size, const void* values) {
  const std::string what = h5::quoted(dataset, owner);
  h5::Id id(h5::open_dataset(file, dataset, owner), H5Dclose);
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
  finish(id, what);
}
}  // namespace

template <class T>
void H5File::write_rows(const std::string& dataset, std::int64_t first, std::int64_t count, std::span<const T> values) {
  const h5::LibraryLock lock;
  write_part(handle_->file, *this, dataset, first, count, h5::native_type(h5_type_of<T>::value), values.size(),
             values.data());
  h5::Object& object = handle_->written->at(h5::absolute(dataset));
  if (object.follows(first, count)) object.numbers.add(values.data(), values.size_bytes());
}

void H5File::write_text_rows(const std::string& dataset, std::int64_t first, std::int64_t count,
                             std::span<const std::string> values) {
  const h5::LibraryLock lock;
  std::size_t width = 0;
  {
    const h5::Id id(h5::open_dataset(handle_->file, dataset, *this), H5Dclose);
    const h5::Id stored(H5Dget_type(id), H5Tclose);
    width = H5Tget_size(stored);
  }
  for (const std::string& value : values)
    require(value.size() <= width, "writing ", h5::quoted(dataset, *this), ": a string of ", value.size(),
            " bytes, where strings have at most ", width);
  write_part(handle_->file, *this, dataset, first, count, h5::string_type(width), values.size(),
             h5::padded(values, width).data());
  h5::Object& object = handle_->written->at(h5::absolute(dataset));
  if (object.follows(first, count)) object.texts = hash_texts(values, object.texts);
}

void H5File::write_text(const std::string& dataset, const std::vector<std::string>& values) {
  const auto count = std::ssize(values);
  create_text(dataset, {count}, h5::longest(values));
  write_text_rows(dataset, 0, count, values);
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
