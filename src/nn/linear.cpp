#include "lockstep/nn/linear.hpp"

#include <array>

#include "lockstep/base/profile.hpp"
#include "lockstep/ops/conv1d.hpp"
#include "lockstep/ops/linear.hpp"
#include "nn/shapes.hpp"

namespace lockstep {

namespace {
Target grad_of(Tape& tape, const Param* p) { return p ? tape.grad_of(*p) : Target{}; }
Tensor value_of(const Tape& tape, const Param* p) { return p ? tape.value(*p) : Tensor{}; }
/// A weight (N, K), or (N, K, 1) of a convolution of width 1, as a matrix.
Tensor matrix(const Tensor& weight) {
  const Shape& s = weight.shape();
  return s.rank() == 3 && s[2] == 1 ? weight.reshaped({s[0], s[1]}) : weight;
}
Target matrix(const Target& target) { return target ? Target{matrix(target.tensor), target.accumulate} : target; }

/// linear_backward for a scope. The first call multiplies dy with the derivative in place and sums it for the bias.
void backward(Tape& t, Tape::BackwardScope scope, Var x, const Target& dweight, const Target& dbias, Var y,
              const Tensor& derivative, const Tensor& weight) {
  if (scope == Tape::BackwardScope::parameters)
    return ops::linear_backward(t.stream(), {}, dweight, {}, y.grad(), {}, x.value(), weight);
  const Tensor& dy = derivative ? t.own_grad(y) : y.grad();
  ops::linear_backward(t.stream(), t.grad_of(x), scope == Tape::BackwardScope::all ? dweight : Target{}, dbias, dy,
                       derivative, x.value(), weight);
}
}  // namespace

Linear add_linear(ParamStore& params, const std::string& name, std::int64_t in, std::int64_t out,
                  ParamStore::Init weight, ParamStore::Init bias) {
  const Param& w = params.add(name + ".weight", {out, in}, std::move(weight));
  return {&w, &params.add(name + ".bias", {out}, std::move(bias))};
}

std::vector<Linear> add_stacked_linears(ParamStore& params, const std::vector<std::string>& names, std::int64_t in,
                                        std::int64_t out, ParamStore::Init weight, ParamStore::Init bias) {
  require(out % 16 == 0, "adding stacked layers of ", out, " columns each: must be a multiple of 16");
  std::vector<Linear> layers(names.size());
  for (std::size_t i = 0; i < names.size(); ++i)
    layers[i].weight = &params.add(names[i] + ".weight", {out, in}, weight);
  for (std::size_t i = 0; i < names.size(); ++i) layers[i].bias = &params.add(names[i] + ".bias", {out}, bias);
  return layers;
}

Conv1d add_conv1d(ParamStore& params, const std::string& name, std::int64_t channels, std::int64_t kernel,
                  ParamStore::Init weight, ParamStore::Init bias) {
  const Param& w = params.add(name + ".weight", {channels, 1, kernel}, std::move(weight));
  return {&w, &params.add(name + ".bias", {channels}, std::move(bias))};
}

Var linear(Tape& t, Var x, const Linear& layer, Activation activation) {
  return linear(t, x, layer, activation, {}, {});
}

Var linear(Tape& t, Var x, const Linear& layer, Activation activation, const ops::Dropout& dropout,
           const ops::SampleRows& rows) {
  require(x.shape().rank() > 0, "linear: x is a scalar");
  const Param *w = layer.weight, *b = layer.bias;
  const Shape shape = with_columns(x.shape(), w->shape[0]);
  const profile::Span span("linear");
  Var y = t.output(shape, t.wants_grad({x}, {w, b}));
  const bool apart = activation != Activation::none || dropout;
  const Tensor derivative = y.wants_grad() && apart ? t.keep(shape) : Tensor{};
  ops::linear_forward(t.stream(), y.value(), derivative, x.value(), matrix(t.value(*w)), value_of(t, b), activation,
                      dropout, rows);
  t.record("linear", y, {w, b}, [=, &t](Tape::BackwardScope scope) {
    backward(t, scope, x, matrix(t.grad_of(*w)), grad_of(t, b), y, derivative, matrix(t.value(*w)));
  });
  return y;
}

namespace {
/// `count` adjacent arrays, given the first one, as one array with `count` times its rows.
Tensor joined(const Tensor& first, std::size_t count) {
  const Shape& s = first.shape();
  const std::int64_t rows = s[0] * static_cast<std::int64_t>(count);
  return {first.raw(), first.dtype(), s.rank() == 2 ? Shape{rows, s[1]} : Shape{rows}, first.device()};
}
Target joined(const Target& first, std::size_t count) {
  return first ? Target{joined(first.tensor, count), first.accumulate} : Target{};
}
}  // namespace

Var stacked_linear(Tape& t, Var x, std::span<const Linear> layers) {
  constexpr std::size_t kMost = 4;
  require(!layers.empty() && layers.size() <= kMost, "stacked linear: ", layers.size(), " layers; must be 1 to ",
          kMost);
  std::array<const Param*, 2 * kMost> used{};
  const std::size_t count = layers.size();
  for (std::size_t i = 0; i < count; ++i) {
    used[2 * i] = layers[i].weight;
    used[2 * i + 1] = layers[i].bias;
  }
  const Param *w = layers[0].weight, *b = layers[0].bias;
  const profile::Span span("stacked_linear");
  Var y = t.output(with_columns(x.shape(), w->shape[0] * static_cast<std::int64_t>(count)), t.wants_grad({x}, {w, b}));
  const Tensor weight = joined(t.value(*w), count);
  ops::linear_forward(t.stream(), y.value(), {}, x.value(), weight, joined(t.value(*b), count), Activation::none);
  t.record("stacked_linear", y, std::span<const Param* const>(used.data(), 2 * count),
           [=, &t](Tape::BackwardScope scope) {
             backward(t, scope, x, joined(t.grad_of(*w), count), joined(t.grad_of(*b), count), y, {}, weight);
           });
  return y;
}

Var conv1d(Tape& t, Var x, const Conv1d& layer, Activation activation) {
  require(x.shape().rank() > 0, "conv1d: x is a scalar");
  const Param *w = layer.weight, *b = layer.bias;
  const Shape shape = with_columns(x.shape(), w->shape[0] * x.columns());
  const profile::Span span("conv1d");
  Var y = t.output(shape, t.wants_grad({x}, {w, b}));
  const Tensor derivative = y.wants_grad() && activation != Activation::none ? t.keep(shape) : Tensor{};
  ops::conv1d_forward(t.stream(), y.value(), derivative, x.value(), t.value(*w), value_of(t, b), activation);
  t.record("conv1d", y, {w, b}, [=, &t] {
    ops::conv1d_backward(t.stream(), t.grad_of(x), t.grad_of(*w), grad_of(t, b), t.own_grad(y), derivative, x.value(),
                         t.value(*w));
  });
  return y;
}

Var activation(Tape& t, Var x, Activation activation) {
  const profile::Span span("activation");
  Var y = t.output(x.shape(), t.wants_grad({x}));
  const Tensor derivative = y.wants_grad() ? t.keep(x.shape()) : Tensor{};
  ops::activation_forward(t.stream(), y.value(), derivative, x.value(), activation);
  t.record("activation", y, {}, [=, &t] { ops::activation_backward(t.stream(), t.grad_of(x), y.grad(), derivative); });
  return y;
}

}  // namespace lockstep
