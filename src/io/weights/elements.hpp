#pragma once
#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "lockstep/base/bf16.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/f16.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/io/weights.hpp"

namespace lockstep::weights {

static_assert(std::endian::native == std::endian::little, "weight files store numbers in memory order, little-endian");

/// The product of the extents, at most `limit`. errors  data: "<what> has shape ..., more values than ..."
inline std::int64_t checked_count(const std::vector<std::int64_t>& shape, std::uint64_t limit,
                                  const std::string& what) {
  std::uint64_t count = 1;
  bool empty = false;
  for (const std::int64_t extent : shape) {
    require_data(extent >= 0, what, " has the shape ", shape_text(shape), " with a negative extent; it is damaged");
    empty = empty || extent == 0;
  }
  for (const std::int64_t extent : shape) {
    if (empty) break;
    require_data(static_cast<std::uint64_t>(extent) <= limit / count, what, " has the shape ", shape_text(shape),
                 ", more values than the ", limit, " that are stored; it is damaged or truncated");
    count *= static_cast<std::uint64_t>(extent);
  }
  return empty ? 0 : static_cast<std::int64_t>(count);
}

/// Shape and strides of an array. Units: elements.
struct Layout {
  std::vector<std::int64_t> shape, strides;
};
/// Row-major, or column-major for `fortran`.
inline Layout contiguous(const std::vector<std::int64_t>& shape, bool fortran = false) {
  Layout layout{shape, std::vector<std::int64_t>(shape.size(), 1)};
  if (std::ranges::find(shape, 0) != shape.end()) return layout;  // the product of the other extents may not fit
  for (std::size_t i = 1; i < shape.size(); ++i) {
    const std::size_t axis = fortran ? i : shape.size() - 1 - i, inner = fortran ? axis - 1 : axis + 1;
    layout.strides[axis] = layout.strides[inner] * shape[inner];
  }
  return layout;
}

/// From: type in the file; To: type of the values; convert: from one to the other.
template <class From, class To, auto convert>
void read_elements(const char* data, const Layout& layout, std::int64_t count, NamedArray& out) {
  std::vector<To> values;
  values.reserve(count);
  std::vector<std::int64_t> index(layout.shape.size(), 0);
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, data + static_cast<std::size_t>(at) * sizeof value, sizeof value);
    values.push_back(convert(value));
    for (std::size_t axis = index.size(); axis-- > 0;) {
      at += layout.strides[axis];
      if (++index[axis] < layout.shape[axis]) break;
      at -= layout.strides[axis] * layout.shape[axis];
      index[axis] = 0;
    }
  }
  out.shape = layout.shape;
  out.values = std::move(values);
}
template <class From, class To>
To converted(From value) {
  return static_cast<To>(value);
}

/// A dtype: its names and its reader.
struct Element {
  std::string_view safetensors, numpy, torch;  ///< "": the format does not have this dtype
  std::size_t width;                           ///< bytes
  /// Reads `count` elements; the first is at `data`.
  void (*read)(const char* data, const Layout& layout, std::int64_t count, NamedArray& out);
};
template <class From, class To = std::int64_t, To (*convert)(From) = converted<From, To>>
constexpr Element element(std::string_view safetensors, std::string_view numpy, std::string_view torch) {
  return {safetensors, numpy, torch, sizeof(From), read_elements<From, To, convert>};
}
inline constexpr std::array kElements = {element<float, float>("F32", "f4", "Float"),
                                         element<double, double>("F64", "f8", "Double"),
                                         element<std::uint16_t, float, from_f16>("F16", "f2", "Half"),
                                         element<std::uint16_t, float, from_bf16>("BF16", "", "BFloat16"),
                                         element<std::int64_t>("I64", "i8", "Long"),
                                         element<std::int32_t>("I32", "i4", "Int"),
                                         element<std::int16_t>("I16", "i2", "Short"),
                                         element<std::int8_t>("I8", "i1", "Char"),
                                         element<std::uint32_t>("U32", "u4", ""),
                                         element<std::uint16_t>("U16", "u2", ""),
                                         element<std::uint8_t>("U8", "u1", "Byte"),
                                         element<std::uint8_t>("BOOL", "b1", "Bool")};

/// The element of this name in a format. errors  data: "<what> is of dtype NAME, expected one of ..."
inline const Element& find_element(std::string_view Element::*format, std::string_view name, const std::string& what) {
  std::vector<std::string> known;
  for (const Element& element : kElements) {
    if (element.*format == name) return element;
    if (!(element.*format).empty()) known.emplace_back(element.*format);
  }
  throw Error(Fault::data, join(what, " is of dtype ", name, ", expected one of ", listed(known)));
}

/// Sorts the arrays by name. errors  data, beginning with `what`: a name twice
NamedArrays sorted(std::vector<NamedArray> arrays, const std::string& what);

}  // namespace lockstep::weights
