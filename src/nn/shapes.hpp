#pragma once
#include <array>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep {

/// A copy of the shape with a different last extent.
inline Shape with_columns(const Shape& shape, std::int64_t columns) {
  std::array<std::int64_t, Shape::kMaxRank> extents{};
  for (int axis = 0; axis < shape.rank(); ++axis) extents[axis] = shape[axis];
  extents[shape.rank() - 1] = columns;
  return Shape(std::span(extents.data(), static_cast<std::size_t>(shape.rank())));
}

}  // namespace lockstep
