#include "pickle.hpp"

#include <bit>
#include <limits>

namespace lockstep::files {

Pickle& Pickle::text(std::string_view value) {
  const auto size = static_cast<std::uint32_t>(value.size());
  op('X').out_.append(reinterpret_cast<const char*>(&size), sizeof size);
  out_ += value;
  return *this;
}

Pickle& Pickle::integer(std::int64_t value) {
  if (value >= std::numeric_limits<std::int32_t>::min() && value <= std::numeric_limits<std::int32_t>::max()) {
    const auto narrow = static_cast<std::int32_t>(value);
    op('J').out_.append(reinterpret_cast<const char*>(&narrow), sizeof narrow);
  } else {
    op('\x8a').op('\x08').out_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return *this;
}

Pickle& Pickle::real(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  op('G');
  for (int shift = 56; shift >= 0; shift -= 8) out_ += static_cast<char>(bits >> shift);
  return *this;
}

Pickle& Pickle::global(std::string_view module, std::string_view name) {
  op('c').out_.append(module).append("\n").append(name).append("\n");
  return *this;
}

Pickle& Pickle::text_list(const std::vector<std::string>& values) {
  empty_list().mark();
  for (const std::string& value : values) text(value);
  return appends();
}

Pickle& Pickle::int_list(const std::vector<std::int64_t>& values) {
  global("torch.jit._pickle", "build_intlist").mark().empty_list().mark();
  for (const std::int64_t value : values) integer(value);
  return appends().tuple().reduce();
}

Pickle& Pickle::tensor(int storage, const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t axis = shape.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * shape[axis];
  const std::int64_t count = shape.empty() ? 1 : strides[0] * shape[0];
  global("torch._utils", "_rebuild_tensor_v2").mark();
  mark()
      .text("storage")
      .global("torch", "FloatStorage")
      .text(std::to_string(storage))
      .text("cpu")
      .integer(count)
      .tuple()
      .persistent_id();
  integer(0);
  for (const auto& extents : {shape, strides}) {
    mark();
    for (const std::int64_t extent : extents) integer(extent);
    tuple();
  }
  boolean(false).global("collections", "OrderedDict").empty_tuple().reduce();
  return tuple().reduce();
}

}  // namespace lockstep::files
