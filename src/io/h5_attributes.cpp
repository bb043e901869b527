#include <algorithm>
#include <optional>
#include <type_traits>

#include "h5_internal.hpp"

namespace lockstep {

namespace {
constexpr std::int64_t kMostAttributeElements = std::int64_t{1} << 24;

std::string quoted_attribute(const std::string& attribute, const std::string& object, const H5File& file) {
  return "attribute '" + attribute + "' of " + h5::quoted(object, file);
}

/// `handle` is an H5File::Handle. It keeps the object open, because most calls are for several attributes of one.
h5::Object& written_object(auto& handle, const std::string& object, const H5File& owner) {
  const auto found = handle.written.value().find(h5::absolute(object));
  require(found != handle.written->end(), "using ", h5::quoted(object, owner), ": it has not been written");
  return found->second;
}

hid_t open_object(auto& handle, const std::string& object, const H5File& owner) {
  if (!handle.written && handle.object != object) handle.object_id.reset();
  h5::Id& id = handle.written ? written_object(handle, object, owner).id : handle.object_id;
  if (id.valid()) return id;
  h5::require_hard_links(handle.file, object, owner);
  id = h5::Id(H5Oopen(handle.file, h5::absolute(object).c_str(), H5P_DEFAULT), H5Oclose);
  handle.object = object;
  require_data(id.valid(), "opening ", h5::quoted(object, owner), ": ", h5::kReason);
  return id;
}

struct Found {
  H5Value value;
  std::vector<std::int64_t> shape;  ///< empty: a scalar
};

/// A scalar attribute becomes a scalar of the variant, an array a list.
template <class T>
Found found(std::vector<T> values, std::vector<std::int64_t> shape) {
  if (shape.empty()) return {std::move(values.front()), {}};
  return {std::move(values), std::move(shape)};
}

/// "a string", "a list of 3 integers", "real numbers of shape (2, 3)".
std::string kind_of(const Found& found) {
  constexpr const char* kOne[] = {"an integer", "a real number", "a string"};
  constexpr const char* kMany[] = {"integers", "real numbers", "strings"};
  const std::size_t kind = found.value.index() % 3;
  if (found.shape.empty()) return kOne[kind];
  if (found.shape.size() > 1) return join(kMany[kind], " of shape ", shape_text(found.shape));
  return found.shape[0] == 0 ? join("an empty list of ", kMany[kind])
                             : join("a list of ", found.shape[0], " ", kMany[kind]);
}

/// `what` names the attribute in messages; `handle` is an H5File::Handle.
Found read_attribute(auto& handle, const H5File& file, const std::string& object, const std::string& attribute,
                     const std::string& what) {
  const hid_t owner = open_object(handle, object, file);
  require_data(H5Aexists(owner, attribute.c_str()) > 0, "reading ", what, ": there is no such attribute");
  const h5::Id id(H5Aopen(owner, attribute.c_str(), H5P_DEFAULT), H5Aclose);
  require_data(id.valid(), "reading ", what, ": ", h5::kReason);
  const h5::Id type(H5Aget_type(id), H5Tclose), space(H5Aget_space(id), H5Sclose);
  require_data(type.valid() && space.valid(), "reading ", what, ": ", h5::kReason);
  const H5Type kind = h5::classify(type, what);
  const auto shape = h5::extents(space, what);
  const std::int64_t n = h5::count(shape, what);
  const auto size = static_cast<std::int64_t>(H5Tget_size(type));
  std::int64_t bytes = 0;
  require_data(n <= kMostAttributeElements && !__builtin_mul_overflow(n, size, &bytes) && bytes <= handle.file_size,
               "reading ", what, ": ", n, " elements of ", size, " bytes are too many for an attribute of a file of ",
               handle.file_size, " bytes");

  const auto values = [&]<class T>(T) {
    std::vector<T> out(n);
    require_data(n == 0 || H5Aread(id, h5::native_type(h5_type_of<T>::value), out.data()) >= 0, "reading ", what, ": ",
                 h5::kReason);
    return found(std::move(out), shape);
  };
  if (kind == H5Type::text) {
    const auto read = [&](hid_t memory, void* out) { return H5Aread(id, memory, out); };
    return found(h5::strings(handle.path, handle.file_size, type, n, what, read), shape);
  }
  if (kind == H5Type::f32 || kind == H5Type::f64) return values(double{});
  return values(std::int64_t{});
}

/// The value as T; integers convert to real numbers, and an empty list to one of any type: numpy stores [] as real
/// numbers. `count`: required length of a list (-1: any).
template <class T>
std::optional<T> convert(const Found& found, std::int64_t count) {
  if (found.shape.size() > 1 || (count >= 0 && !found.shape.empty() && found.shape[0] != count)) return {};
  if (const T* value = std::get_if<T>(&found.value)) return *value;
  if constexpr (std::is_same_v<T, double>)
    if (const auto* integer = std::get_if<std::int64_t>(&found.value)) return static_cast<double>(*integer);
  if constexpr (std::is_same_v<T, std::vector<double>>)
    if (const auto* integers = std::get_if<std::vector<std::int64_t>>(&found.value))
      return T(integers->begin(), integers->end());
  if constexpr (!std::is_arithmetic_v<T> && !std::is_same_v<T, std::string>)
    if (!found.shape.empty() && found.shape[0] == 0) return T{};
  return {};
}

/// An attribute about to be written: its type, its extent and its bytes.
struct Encoded {
  h5::Id type, space;
  std::string bytes;
};

template <class T>
Encoded encode(std::span<const T> values, bool scalar) {
  Encoded out;
  const hsize_t extent = values.size();
  out.space = h5::Id(scalar ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &extent, nullptr), H5Sclose);
  if constexpr (std::is_same_v<T, std::string>) {
    out.type = h5::string_type(h5::longest(values));
    out.bytes = h5::padded(values, h5::longest(values));
  } else {
    out.type = h5::Id(H5Tcopy(h5::native_type(h5_type_of<T>::value)), H5Tclose);
    out.bytes.assign(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  }
  return out;
}

struct Encoder {
  template <class T>
  Encoded operator()(const T& value) const {
    return encode(std::span<const T>(&value, 1), true);
  }
  template <class T>
  Encoded operator()(const std::vector<T>& values) const {
    return encode(std::span<const T>(values), false);
  }
};

}  // namespace

bool H5File::has_attribute(const std::string& object, const std::string& attribute) const {
  const h5::LibraryLock lock;
  if (!has(object)) return false;
  const hid_t id = open_object(*handle_, object, *this);
  const bool found = H5Aexists(id, attribute.c_str()) > 0;
  H5Eclear2(H5E_DEFAULT);
  return found;
}

std::vector<std::string> H5File::attributes(const std::string& object) const {
  const h5::LibraryLock lock;
  const hid_t id = open_object(*handle_, object, *this);
  std::vector<std::string> names;
  const auto keep = [](hid_t, const char* name, const H5A_info_t*, void* out) -> herr_t {
    static_cast<std::vector<std::string>*>(out)->emplace_back(name);
    return 0;
  };
  hsize_t position = 0;
  require_data(H5Aiterate2(id, H5_INDEX_NAME, H5_ITER_NATIVE, &position, keep, &names) >= 0,
               "listing the attributes of ", h5::quoted(object, *this), ": ", h5::kReason);
  std::sort(names.begin(), names.end());
  return names;
}

H5Value H5File::attribute(const std::string& object, const std::string& attribute) const {
  const h5::LibraryLock lock;
  return read_attribute(*handle_, *this, object, attribute, quoted_attribute(attribute, object, *this)).value;
}

template <class T>
T H5File::typed_attribute(const std::string& object, const std::string& attribute, const char* kind,
                          std::int64_t count) const {
  const h5::LibraryLock lock;
  const std::string what = quoted_attribute(attribute, object, *this);
  const std::string expected = count < 0 ? kind : join("a list of ", count, " ", kind);
  const Found found = read_attribute(*handle_, *this, object, attribute, what + " (expected " + expected + ")");
  std::optional<T> value = convert<T>(found, count);
  require_data(value.has_value(), "reading ", what, ": expected ", expected, ", found ", kind_of(found));
  return *std::move(value);
}

std::int64_t H5File::int_attribute(const std::string& object, const std::string& attribute) const {
  return typed_attribute<std::int64_t>(object, attribute, "an integer");
}
double H5File::real_attribute(const std::string& object, const std::string& attribute) const {
  return typed_attribute<double>(object, attribute, "a real number");
}
std::string H5File::text_attribute(const std::string& object, const std::string& attribute) const {
  return typed_attribute<std::string>(object, attribute, "a string");
}
std::vector<std::int64_t> H5File::int_list(const std::string& object, const std::string& attribute,
                                           std::int64_t count) const {
  return typed_attribute<std::vector<std::int64_t>>(object, attribute, count < 0 ? "a list of integers" : "integers",
                                                    count);
}
std::vector<double> H5File::real_list(const std::string& object, const std::string& attribute,
                                      std::int64_t count) const {
  return typed_attribute<std::vector<double>>(object, attribute, count < 0 ? "a list of real numbers" : "real numbers",
                                              count);
}
std::vector<std::string> H5File::text_list(const std::string& object, const std::string& attribute,
                                           std::int64_t count) const {
  return typed_attribute<std::vector<std::string>>(object, attribute, count < 0 ? "a list of strings" : "strings",
                                                   count);
}

void H5File::set_attribute(const std::string& object, const std::string& attribute, const H5Value& value) {
  const h5::LibraryLock lock;
  const std::string what = quoted_attribute(attribute, object, *this);
  const hid_t owner = open_object(*handle_, object, *this);
  auto& known = written_object(*handle_, object, *this).attributes;
  if (known.contains(attribute))
    require(H5Adelete(owner, attribute.c_str()) >= 0, "replacing ", what, ": ", h5::kReason);
  const Encoded encoded = std::visit(Encoder{}, value);
  const h5::Id id(H5Acreate2(owner, attribute.c_str(), encoded.type, encoded.space, H5P_DEFAULT, H5P_DEFAULT),
                  H5Aclose);
  require(id.valid(), "writing ", what, ": ", h5::kReason);
  require(encoded.bytes.empty() || H5Awrite(id, encoded.type, encoded.bytes.data()) >= 0, "writing ", what, ": ",
          h5::kReason);
  known[attribute] = value;
}

}  // namespace lockstep
