#include <algorithm>

#include "element_types.hpp"
#include "h5_internal.hpp"

namespace lockstep {

namespace {
/// A dataset opened for reading, after all checks that need no data.
struct Source {
  std::string what;
  h5::Id id, type;
  H5Type kind;
  std::vector<std::int64_t> shape;

  Source(hid_t file, const H5File& owner, const std::string& dataset, std::int64_t file_size)
      : what(h5::quoted(dataset, owner)), id(h5::open_dataset(file, dataset, owner), H5Dclose) {
    type = h5::Id(H5Dget_type(id), H5Tclose);
    const h5::Id space(H5Dget_space(id), H5Sclose);
    require_data(type.valid() && space.valid(), "reading ", what, ": ", h5::kReason);
    kind = h5::classify(type, what);
    shape = h5::extents(space, what);
    if (file_size != h5::kNoLimit) h5::require_plain_storage(id, shape, H5Tget_size(type), file_size, what);
  }
};

bool is_integer(H5Type type) { return type == H5Type::u8 || type == H5Type::i32 || type == H5Type::i64; }
bool is_float(H5Type type) { return type == H5Type::f32 || type == H5Type::f64; }

void require_kind(const Source& source, H5Type wanted) {
  require_data(is_integer(wanted) ? is_integer(source.kind) : is_float(source.kind), "reading ", source.what,
               ": expected ", is_integer(wanted) ? "integers" : "floating-point numbers", ", found ",
               name(source.kind));
}

void transfer(const Source& source, H5Type type, hid_t memory_space, hid_t file_space, void* out) {
  const h5::Id properties = h5::checked_transfer();
  require_data(H5Dread(source.id, h5::native_type(type), memory_space, file_space, properties, out) >= 0, "reading ",
               source.what, " as ", name(type), ": ", h5::kReason);
}

/// Rows [first, first + count) of the outermost axis.
void transfer_rows(const Source& source, H5Type type, std::int64_t first, std::int64_t count, void* out) {
  std::vector<hsize_t> start(source.shape.size(), 0), extent(source.shape.begin(), source.shape.end());
  start[0] = static_cast<hsize_t>(first);
  extent[0] = static_cast<hsize_t>(count);
  const h5::Id file_space(H5Dget_space(source.id), H5Sclose);
  const h5::Id memory_space(H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr), H5Sclose);
  require_data(H5Sselect_hyperslab(file_space, H5S_SELECT_SET, start.data(), nullptr, extent.data(), nullptr) >= 0,
               "reading ", source.what, ": ", h5::kReason);
  transfer(source, type, memory_space, file_space, out);
}
}  // namespace

H5Info H5File::info(const std::string& dataset) const {
  const h5::LibraryLock lock;
  const Source source(handle_->file, *this, dataset, handle_->file_size);
  return {source.kind, source.shape};
}

template <class T>
void H5File::read_into(const std::string& dataset, std::span<T> out,
                       const std::vector<std::int64_t>& expected_shape) const {
  const h5::LibraryLock lock;
  const Source source(handle_->file, *this, dataset, handle_->file_size);
  require_kind(source, h5_type_of<T>::value);
  require_data(expected_shape.empty() || source.shape == expected_shape, "reading ", source.what, ": expected shape ",
               shape_text(expected_shape), ", found ", shape_text(source.shape));
  const std::int64_t n = h5::count(source.shape, source.what);
  require_data(n == std::ssize(out), "reading ", source.what, ": expected ", out.size(), " elements, found shape ",
               shape_text(source.shape));
  if (n > 0) transfer(source, h5_type_of<T>::value, H5S_ALL, H5S_ALL, out.data());
}

template <class T>
std::vector<T> H5File::read(const std::string& dataset) const {
  const h5::LibraryLock lock;
  const Source source(handle_->file, *this, dataset, handle_->file_size);
  require_kind(source, h5_type_of<T>::value);
  std::vector<T> out(h5::count(source.shape, source.what));
  if (!out.empty()) transfer(source, h5_type_of<T>::value, H5S_ALL, H5S_ALL, out.data());
  return out;
}

template <class T>
void H5File::read_rows(const std::string& dataset, std::int64_t first, std::int64_t count, std::span<T> out) const {
  const h5::LibraryLock lock;
  const Source source(handle_->file, *this, dataset, handle_->file_size);
  require_kind(source, h5_type_of<T>::value);
  require_data(
      !source.shape.empty() && first >= 0 && count >= 0 && first <= source.shape[0] && count <= source.shape[0] - first,
      "reading rows [", first, ", ", first + count, ") of ", source.what, ": its shape is ", shape_text(source.shape));
  std::vector<std::int64_t> part = source.shape;
  part[0] = count;
  const std::int64_t n = h5::count(part, source.what);
  require(n == std::ssize(out), "reading ", count, " rows of ", source.what, ": ", n,
          " elements do not fit memory for ", out.size());
  if (n > 0) transfer_rows(source, h5_type_of<T>::value, first, count, out.data());
}

template <class T>
void H5File::read_blocks(const std::string& dataset,
                         const std::function<void(std::int64_t first, std::span<const T> values)>& visit) const {
  const h5::LibraryLock lock;
  const Source source(handle_->file, *this, dataset, handle_->file_size);
  constexpr H5Type kType = h5_type_of<T>::value;
  require_kind(source, kType);
  const std::int64_t n = h5::count(source.shape, source.what), rows = source.shape.empty() ? 1 : source.shape[0];
  if (n == 0) return;
  const std::int64_t width = n / rows, most = h5::block_rows(source.id, source.shape, sizeof(T));
  std::vector<T> block(most * width);
  for (std::int64_t first = 0; first < rows; first += most) {
    const std::int64_t count = std::min(most, rows - first);
    if (count == rows) {
      transfer(source, kType, H5S_ALL, H5S_ALL, block.data());
    } else {
      transfer_rows(source, kType, first, count, block.data());
    }
    visit(first * width, std::span<const T>(block).first(count * width));
  }
}

std::vector<std::string> H5File::read_text(const std::string& dataset) const {
  const h5::LibraryLock lock;
  const Source source(handle_->file, *this, dataset, handle_->file_size);
  require_data(source.kind == H5Type::text, "reading ", source.what, ": expected strings, found ", name(source.kind));
  const std::int64_t n = h5::count(source.shape, source.what);
  return h5::strings(path(), handle_->file_size, source.type, n, source.what, [&](hid_t memory, void* out) {
    return H5Dread(source.id, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, out);
  });
}

#define INSTANTIATE(T)                                                                                                \
  template std::vector<T> H5File::read(const std::string&) const;                                                     \
  template void H5File::read_into(const std::string&, std::span<T>, const std::vector<std::int64_t>&) const;          \
  template void H5File::read_rows(const std::string&, std::int64_t, std::int64_t, std::span<T>) const;                \
  template void H5File::read_blocks(const std::string&, const std::function<void(std::int64_t, std::span<const T>)>&) \
      const;
LOCKSTEP_EACH_ELEMENT(INSTANTIATE)
#undef INSTANTIATE

}  // namespace lockstep
