#include <algorithm>

#include "h5_internal.hpp"

namespace lockstep {

namespace {
constexpr std::int64_t kMostAttributeElements = std::int64_t{1} << 24;

std::string quoted_attribute(const std::string& attribute, const std::string& object, const H5File& file) {
  return "attribute '" + attribute + "' of " + h5::quoted(object, file);
}

h5::Id open_object(hid_t file, const std::string& object, const H5File& owner) {
  h5::require_hard_links(file, object, owner);
  h5::Id id(H5Oopen(file, h5::absolute(object).c_str(), H5P_DEFAULT), H5Oclose);
  require_data(id.valid(), "opening ", h5::quoted(object, owner), ": ", h5::kReason);
  return id;
}

/// One element becomes a scalar of the variant, an array stays one.
template <class T>
H5Value as_value(std::vector<T> values, bool scalar) {
  if (scalar) return std::move(values.front());
  return values;
}
}  // namespace

bool H5File::has_attribute(const std::string& object, const std::string& attribute) const {
  const h5::Turn turn;
  if (!has(object)) return false;
  const h5::Id id = open_object(handle_->file, object, *this);
  const bool found = H5Aexists(id, attribute.c_str()) > 0;
  H5Eclear2(H5E_DEFAULT);
  return found;
}

std::vector<std::string> H5File::attributes(const std::string& object) const {
  const h5::Turn turn;
  const h5::Id id = open_object(handle_->file, object, *this);
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
  const h5::Turn turn;
  const std::string what = quoted_attribute(attribute, object, *this);
  const h5::Id owner = open_object(handle_->file, object, *this);
  require_data(H5Aexists(owner, attribute.c_str()) > 0, "reading ", what, ": there is no such attribute");
  const h5::Id id(H5Aopen(owner, attribute.c_str(), H5P_DEFAULT), H5Aclose);
  require_data(id.valid(), "reading ", what, ": ", h5::kReason);
  const h5::Id type(H5Aget_type(id), H5Tclose), space(H5Aget_space(id), H5Sclose);
  require_data(type.valid() && space.valid(), "reading ", what, ": ", h5::kReason);
  const H5Type kind = h5::classify(type, what);
  const auto shape = h5::extents(space, what);
  const std::int64_t n = h5::count(shape, what);
  require_data(n <= kMostAttributeElements, "reading ", what, ": ", n, " elements are too many for an attribute");

  const auto values = [&]<class T>(T) {
    std::vector<T> out(static_cast<std::size_t>(n));
    require_data(n == 0 || H5Aread(id, h5::native_type(h5_type_of<T>::value), out.data()) >= 0, "reading ", what, ": ",
                 h5::kReason);
    return as_value(std::move(out), shape.empty());
  };
  if (kind == H5Type::text) {
    if (!handle_->writing && H5Tis_variable_str(type) > 0) handle_->sound_heaps();
    const auto read = [&](hid_t memory, void* out) { return H5Aread(id, memory, out); };
    return as_value(h5::strings(type, n, what, read), shape.empty());
  }
  if (kind == H5Type::f32 || kind == H5Type::f64) return values(double{});
  return values(std::int64_t{});
}

namespace {
const char* kind_of(const H5Value& value) {
  constexpr const char* kNames[] = {"an integer", "a real number", "a string", "integers", "real numbers", "strings"};
  return kNames[value.index()];
}

template <class T>
T expect(const H5Value& value, const char* expected, const std::string& what) {
  const T* found = std::get_if<T>(&value);
  require_data(found != nullptr, "reading ", what, ": expected ", expected, ", found ", kind_of(value));
  return *found;
}
}  // namespace

std::int64_t H5File::int_attribute(const std::string& object, const std::string& attribute) const {
  return expect<std::int64_t>(this->attribute(object, attribute), "an integer",
                              quoted_attribute(attribute, object, *this));
}

double H5File::real_attribute(const std::string& object, const std::string& attribute) const {
  const H5Value value = this->attribute(object, attribute);
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
  return expect<double>(value, "a real number", quoted_attribute(attribute, object, *this));
}

std::string H5File::text_attribute(const std::string& object, const std::string& attribute) const {
  return expect<std::string>(this->attribute(object, attribute), "a string",
                             quoted_attribute(attribute, object, *this));
}

namespace {
/// An attribute about to be written: its type, its extent (scalar when rank 0) and its bytes.
struct Encoded {
  h5::Id type, space;
  std::vector<char> bytes;
};

template <class T>
Encoded encode_numbers(const T* values, std::size_t n, bool scalar) {
  Encoded out;
  out.type = h5::Id(H5Tcopy(h5::native_type(h5_type_of<T>::value)), H5Tclose);
  const hsize_t extent = n;
  out.space = h5::Id(scalar ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &extent, nullptr), H5Sclose);
  const auto* begin = reinterpret_cast<const char*>(values);
  out.bytes.assign(begin, begin + n * sizeof(T));
  return out;
}

Encoded encode_strings(const std::string* values, std::size_t n, bool scalar, H5Strings how) {
  Encoded out;
  std::size_t longest = 1;
  for (std::size_t i = 0; i < n; ++i) longest = std::max(longest, values[i].size());
  const bool variable = how == H5Strings::variable;
  out.type = h5::string_type(variable ? 0 : longest);
  const hsize_t extent = n;
  out.space = h5::Id(scalar ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &extent, nullptr), H5Sclose);
  out.bytes.assign(n * (variable ? sizeof(char*) : longest), '\0');
  for (std::size_t i = 0; i < n; ++i) {
    if (variable) {
      const char* text = values[i].c_str();
      std::copy_n(reinterpret_cast<const char*>(&text), sizeof text,
                  out.bytes.begin() + static_cast<long>(i * sizeof text));
    } else {
      values[i].copy(out.bytes.data() + i * longest, longest);
    }
  }
  return out;
}

struct Encoder {
  H5Strings how;
  Encoded operator()(std::int64_t v) const { return encode_numbers(&v, 1, true); }
  Encoded operator()(double v) const { return encode_numbers(&v, 1, true); }
  Encoded operator()(const std::string& v) const { return encode_strings(&v, 1, true, how); }
  Encoded operator()(const std::vector<std::int64_t>& v) const { return encode_numbers(v.data(), v.size(), false); }
  Encoded operator()(const std::vector<double>& v) const { return encode_numbers(v.data(), v.size(), false); }
  Encoded operator()(const std::vector<std::string>& v) const { return encode_strings(v.data(), v.size(), false, how); }
};
}  // namespace

void H5File::set_attribute(const std::string& object, const std::string& attribute, const H5Value& value) {
  const h5::Turn turn;
  const std::string what = quoted_attribute(attribute, object, *this);
  const h5::Id owner = open_object(handle_->file, object, *this);
  if (H5Aexists(owner, attribute.c_str()) > 0) {
    require(H5Adelete(owner, attribute.c_str()) >= 0, "replacing ", what, ": ", h5::kReason);
  }
  const Encoded encoded = std::visit(Encoder{handle_->strings}, value);
  const h5::Id id(H5Acreate2(owner, attribute.c_str(), encoded.type, encoded.space, H5P_DEFAULT, H5P_DEFAULT),
                  H5Aclose);
  require(id.valid(), "writing ", what, ": ", h5::kReason);
  require(encoded.bytes.empty() || H5Awrite(id, encoded.type, encoded.bytes.data()) >= 0, "writing ", what, ": ",
          h5::kReason);
}

}  // namespace lockstep
