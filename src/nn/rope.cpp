#include "lockstep/nn/rope.hpp"

#include "lockstep/base/profile.hpp"
#include "lockstep/ops/linear.hpp"
#include "lockstep/ops/rope.hpp"
#include "nn/shapes.hpp"

namespace lockstep {

RopeTable make_rope_table(DType dtype, std::int64_t positions, std::int64_t head_width, double theta, Device device) {
  require(head_width % 2 == 0, "rotary positions: the head width must be even, not ", head_width);
  const Shape shape{positions, head_width / 2};
  RopeTable table{OwnedTensor(dtype, shape, device), OwnedTensor(dtype, shape, device)};
  ops::rope_table(table.cos, table.sin, theta);
  return table;
}

Var rotary_linear(Tape& t, Var x, const Param& weight, const RopeTable& table) {
  const profile::Span span("rotary_linear");
  Var y = t.output(with_columns(x.shape(), weight.shape[0]), t.wants_grad({x}, {&weight}));
  ops::linear_forward(t.stream(), y.value(), {}, x.value(), t.value(weight), {}, ops::Activation::none);
  const Tensor cos = table.cos, sin = table.sin;
  // Heads of q and k together: 2D of the 3D columns are rotated.
  const std::int64_t heads = cos ? weight.shape[0] / 3 / cos.shape()[1] : 0;
  if (cos) ops::rope(t.stream(), y.value(), cos, sin, heads, ops::Rotation::forward);
  t.record("rotary_linear", y, {&weight}, [=, &t, &weight] {
    if (cos) ops::rope(t.stream(), t.own_grad(y), cos, sin, heads, ops::Rotation::inverse);
    ops::linear_backward(t.stream(), t.grad_of(x), t.grad_of(weight), {}, y.grad(), {}, x.value(), t.value(weight));
  });
  return y;
}

}  // namespace lockstep
