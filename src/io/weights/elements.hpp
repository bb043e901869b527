#pragma once
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

/// Where the elements of an array are, in elements.
struct Layout {
  std::vector<std::int64_t> shape, strides;
};
/// Row-major, or column-major for `fortran`.
inline Layout contiguous(const std::vector<std::int64_t>& shape, bool fortran = false) {
  Layout layout{shape, std::vector<std::int64_t>(shape.size(), 1)};
  for (std::size_t i = 1; i < shape.size(); ++i) {
    const std::size_t axis = fortran ? i : shape.size() - 1 - i, inner = fortran ? axis - 1 : axis + 1;
    layout.strides[axis] = layout.strides[inner] * shape[inner];
  }
  return layout;
}

/// How one dtype of a file is read.
struct Element {
  std::string_view name;  ///< in the file
  std::size_t width;      ///< bytes
  /// Makes the `count` values of an array whose first element is at `data`.
  void (*read)(const char* data, const Layout& layout, std::int64_t count, NamedArray& out);
};

/// From: type in the file; To: type of the values; convert: one into the other.
template <class From, class To, auto convert>
void read_elements(const char* data, const Layout& layout, std::int64_t count, NamedArray& out) {
  std::vector<To> values;
  values.reserve(static_cast<std::size_t>(count));
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
template <class From, class To = From>
constexpr Element element(std::string_view name) {
  return {name, sizeof(From), read_elements<From, To, [](From value) { return static_cast<To>(value); }>};
}
constexpr Element f16_element(std::string_view name) {
  return {name, 2, read_elements<std::uint16_t, float, [](std::uint16_t bits) { return from_f16(bits); }>};
}
constexpr Element bf16_element(std::string_view name) {
  return {name, 2, read_elements<std::uint16_t, float, [](std::uint16_t bits) { return from_bf16(bits); }>};
}

/// errors  data: "<what> is of dtype NAME, expected ..."
template <std::size_t N>
const Element& find_element(const std::array<Element, N>& table, std::string_view name, const std::string& what) {
  std::string known;
  for (const Element& element : table) {
    if (element.name == name) return element;
    known += (known.empty() ? "" : ", ") + std::string(element.name);
  }
  throw Error(Fault::data, join(what, " is of dtype ", name, ", expected one of ", known));
}

/// Sorts the arrays by name. errors  data, beginning with `what`: a name twice
NamedArrays sorted(std::vector<NamedArray> arrays, const std::string& what);

}  // namespace lockstep::weights
