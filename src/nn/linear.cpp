#include "lockstep/nn/linear.hpp"

#include "lockstep/ops/conv1d.hpp"
#include "lockstep/ops/linear.hpp"
#include "nn/shapes.hpp"

namespace lockstep {

namespace {
Target grad_of(Tape& tape, const Param* p) { return p ? tape.grad_of(*p) : Target{}; }
Tensor value_of(const Param* p) { return p ? p->value : Tensor{}; }
/// A weight (N, K) or, of a convolution of width 1, (N, K, 1) as a matrix.
Tensor matrix(const Tensor& weight) {
  const Shape& s = weight.shape();
  return s.rank() == 3 && s[2] == 1 ? weight.reshaped({s[0], s[1]}) : weight;
}
Target matrix(const Target& target) { return target ? Target{matrix(target.tensor), target.accumulate} : target; }
}  // namespace

Linear add_linear(ParamStore& params, const std::string& name, std::int64_t in, std::int64_t out,
                  ParamStore::Init weight, ParamStore::Init bias) {
  const Param& w = params.add(name + ".weight", {out, in}, std::move(weight));
  return {&w, &params.add(name + ".bias", {out}, std::move(bias))};
}

Conv1d add_conv1d(ParamStore& params, const std::string& name, std::int64_t channels, std::int64_t kernel,
                  ParamStore::Init weight, ParamStore::Init bias) {
  const Param& w = params.add(name + ".weight", {channels, 1, kernel}, std::move(weight));
  return {&w, &params.add(name + ".bias", {channels}, std::move(bias))};
}

Var linear(Tape& t, Var x, const Linear& layer, Activation activation) {
  require(x.shape().rank() > 0, "linear: x is a scalar");
  const Param *w = layer.weight, *b = layer.bias;
  const Shape shape = with_columns(x.shape(), w->shape[0]);
  Var y = t.output(shape, t.wants_grad({x}, {w, b}));
  const Tensor derivative = y.wants_grad() && activation != Activation::none ? t.keep(shape) : Tensor{};
  ops::linear_forward(t.stream(), y.value(), derivative, x.value(), matrix(w->value), value_of(b), activation);
  t.record("linear", y, {w, b}, [=, &t] {
    ops::linear_backward(t.stream(), t.grad_of(x), matrix(t.grad_of(*w)), grad_of(t, b), y.grad(), derivative,
                         x.value(), matrix(w->value));
  });
  return y;
}

Var conv1d(Tape& t, Var x, const Conv1d& layer, Activation activation) {
  require(x.shape().rank() > 0, "conv1d: x is a scalar");
  const Param *w = layer.weight, *b = layer.bias;
  const Shape shape = with_columns(x.shape(), w->shape[0] * x.columns());
  Var y = t.output(shape, t.wants_grad({x}, {w, b}));
  const Tensor derivative = y.wants_grad() && activation != Activation::none ? t.keep(shape) : Tensor{};
  ops::conv1d_forward(t.stream(), y.value(), derivative, x.value(), w->value, b->value, activation);
  t.record("conv1d", y, {w, b}, [=, &t] {
    ops::conv1d_backward(t.stream(), t.grad_of(x), t.grad_of(*w), t.grad_of(*b), y.grad(), derivative, x.value(),
                         w->value);
  });
  return y;
}

Var activation(Tape& t, Var x, Activation activation) {
  Var y = t.output(x.shape(), t.wants_grad({x}));
  const Tensor derivative = y.wants_grad() ? t.keep(x.shape()) : Tensor{};
  ops::activation_forward(t.stream(), y.value(), derivative, x.value(), activation);
  t.record("activation", y, {}, [=, &t] { ops::activation_backward(t.stream(), t.grad_of(x), y.grad(), derivative); });
  return y;
}

}  // namespace lockstep
