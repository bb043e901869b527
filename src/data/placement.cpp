#include "lockstep/data/placement.hpp"

namespace lockstep {

Tensor LocalPlacement::place(DType dtype, Shape shape, const std::function<void(const Tensor&)>& fill) {
  const Tensor array = arrays_.emplace_back(dtype, shape);
  fill(array);
  return array;
}

}  // namespace lockstep
