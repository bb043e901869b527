#include "lockstep/nn/transfer.hpp"

#include "lockstep/ops/cast.hpp"
#include "lockstep/tensor/on_device.hpp"

namespace lockstep {

namespace {
Tensor as(Tape& t, const Tensor& values, DType dtype) {
  if (values.dtype() == dtype) return values;
  const Tensor result = allocate(t.arena(), dtype, values.shape());
  ops::cast(t.stream(), result, values);
  return result;
}
}  // namespace

Tensor to_tape(Tape& t, const Tensor& values) { return as(t, on_device(t.stream(), t.arena(), values), t.dtype()); }

Tensor to_host(Tape& t, const Tensor& values) { return on_host(t.stream(), t.arena(), as(t, values, t.real_dtype())); }

}  // namespace lockstep
