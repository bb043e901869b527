#include "lockstep/nn/rope.hpp"

#include "lockstep/ops/rope.hpp"

namespace lockstep {

RopeTable make_rope_table(DType dtype, std::int64_t positions, std::int64_t head_width, double theta, Device device) {
  require(head_width % 2 == 0, "rotary positions: the head width must be even, not ", head_width);
  const Shape shape{positions, head_width / 2};
  RopeTable table{OwnedTensor(dtype, shape, device), OwnedTensor(dtype, shape, device)};
  ops::rope_table(table.cos, table.sin, theta);
  return table;
}

}  // namespace lockstep
