#include "lockstep/nn/linear.hpp"

#include <array>

#include "lockstep/base/profile.hpp"
#include "lockstep/ops/conv1d.hpp"
#include "lockstep/ops/linear.hpp"
#include "lockstep/ops/swiglu.hpp"
#include "lockstep/ops/token_mixing.hpp"
#include "nn/shapes.hpp"

namespace lockstep {

namespace {
Target grad_of(Tape& tape, const Param* p) { return p ? tape.grad_of(*p) : Target{}; }
Tensor value_of(const Tape& tape, const Param* p) { return p ? tape.value(*p) : Tensor{}; }

/// The parameters of `count` adjacent layers as one matrix or vector, given those of the first layer: weights (N, K) or
/// biases (N). Also accepts the weights (N, K, 1) of a convolution of width 1.
Tensor joined(const Tensor& first, std::size_t count) {
  if (!first) return first;
  const Shape& s = first.shape();
  const std::int64_t rows = s[0] * static_cast<std::int64_t>(count);
  const bool matrix = s.rank() == 2 || (s.rank() == 3 && s[2] == 1);
  return {first.raw(), first.dtype(), matrix ? Shape{rows, s[1]} : s.rank() == 1 ? Shape{rows} : s, first.device()};
}
Target joined(const Target& first, std::size_t count) { return {joined(first.tensor, count), first.accumulate}; }

/// y = residual + dropout(f(x weight^T + bias)) with the weights and biases of adjacent layers; `residual` may be
/// empty.
Var apply(Tape& t, const char* op, Var x, std::span<const Linear> layers, Activation activation,
          const ops::Dropout& dropout, const ops::SampleRows& rows, Var residual) {
  constexpr std::size_t kMost = 4;
  require(!layers.empty() && layers.size() <= kMost, op, ": ", layers.size(), " layers; must be 1 to ", kMost);
  require(x.shape().rank() > 0, op, ": x is a scalar");
  std::array<const Param*, 2 * kMost> used{};
  const std::size_t count = layers.size();
  for (std::size_t i = 0; i < count; ++i) {
    used[2 * i] = layers[i].weight;
    used[2 * i + 1] = layers[i].bias;
  }
  const Param *w = layers[0].weight, *b = layers[0].bias;
  const Shape shape = with_columns(x.shape(), w->shape[0] * static_cast<std::int64_t>(count));
  const profile::Span span(op);
  Var y = t.output(shape, t.wants_grad({x, residual}, {w, b}));
  const bool elementwise = activation != Activation::none || dropout;
  const Tensor derivative = y.wants_grad() && elementwise ? t.keep(shape) : Tensor{},
               weight = joined(t.value(*w), count);
  ops::linear_forward(t.stream(), y.value(), derivative, x.value(), weight, joined(value_of(t, b), count), activation,
                      dropout, rows, residual ? residual.value() : Tensor{});
  const bool offers = residual && count == 1 && (derivative || b != nullptr);
  const GradientEpilogue* epilogue = offers ? t.offer_epilogue(y, {derivative, b}) : nullptr;
  t.record(op, y, std::span<const Param* const>(used.data(), 2 * count), [=, &t](Tape::BackwardScope scope) {
    // da = dy * derivative is written over dy, or over the derivative if dy is also the gradient of a residual.
    const bool formed = scope == Tape::BackwardScope::parameters || (epilogue && epilogue->done);
    const Tensor none, &dy = derivative && !residual && !formed ? t.own_grad(y) : y.grad();
    const bool in_derivative = derivative && residual;
    ops::linear_backward(t.stream(), scope == Tape::BackwardScope::parameters ? Target{} : t.grad_of(x),
                         scope == Tape::BackwardScope::inputs ? Target{} : joined(t.grad_of(*w), count),
                         formed ? Target{} : joined(grad_of(t, b), count), in_derivative ? derivative : dy,
                         formed          ? none
                         : in_derivative ? dy
                                         : derivative,
                         x.value(), weight);
    if (residual && scope != Tape::BackwardScope::parameters) t.pass_grad({residual}, y);
  });
  return y;
}
}  // namespace

Linear add_linear(ParamStore& params, const std::string& name, std::int64_t in, std::int64_t out,
                  ParamStore::Init weight, ParamStore::Init bias) {
  const Param& w = params.add(name + ".weight", {out, in}, std::move(weight));
  return {&w, &params.add(name + ".bias", {out}, std::move(bias))};
}

std::vector<Linear> add_stacked_linears(ParamStore& params, const std::vector<std::string>& names, std::int64_t in,
                                        std::int64_t out, const ParamStore::Init& weight,
                                        const ParamStore::Init& bias) {
  std::vector<Linear> layers(names.size());
  const auto add = [&](std::size_t i, const char* what, const Shape& shape, const ParamStore::Init& init) {
    return &(i == 0 ? params.add(names[i] + what, shape, init) : params.add_adjoining(names[i] + what, shape, init));
  };
  for (std::size_t i = 0; i < names.size(); ++i) layers[i].weight = add(i, ".weight", {out, in}, weight);
  for (std::size_t i = 0; i < names.size(); ++i) layers[i].bias = add(i, ".bias", {out}, bias);
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
  return apply(t, "linear", x, {&layer, 1}, activation, dropout, rows, {});
}

Var residual_linear(Tape& t, Var residual, Var x, const Linear& layer, const ops::Dropout& dropout,
                    const ops::SampleRows& rows) {
  return apply(t, "residual_linear", x, {&layer, 1}, Activation::none, dropout, rows, residual);
}

Var stacked_linear(Tape& t, Var x, std::span<const Linear> layers, Var residual) {
  return apply(t, "stacked_linear", x, layers, Activation::none, {}, {}, residual);
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

Var gated_residual(Tape& t, Var x, const Param& gate_up, const Param& down, const std::optional<double>& norm_eps) {
  const std::int64_t rows = x.rows(), width = down.shape[1];
  const bool normed = norm_eps.has_value();
  const profile::Span span("swiglu");
  Var y = t.output(x.shape(), t.wants_grad({x}, {&gate_up, &down}));
  const Tensor h = t.keep({rows, width}), both = y.wants_grad() ? t.keep({rows, 2 * width}) : Tensor{};
  const Tensor rstd = normed && y.wants_grad() ? t.keep({rows}, t.real_dtype()) : Tensor{};
  const Tensor z = normed ? t.keep(x.shape()) : x.value();
  if (normed)
    ops::normed_swiglu_forward(t.stream(), h, z, rstd, both, x.value(), t.value(gate_up), *norm_eps);
  else
    ops::swiglu_forward(t.stream(), h, both, x.value(), t.value(gate_up));
  ops::linear_forward(t.stream(), y.value(), {}, h, t.value(down), {}, ops::Activation::none, {}, {}, z);
  t.record("swiglu", y, {&gate_up, &down}, [=, &t, &gate_up, &down] {
    const Tensor dy = t.own_grad(y);
    const Target dgate_up = t.grad_of(gate_up);
    ops::linear_backward(t.stream(), {}, t.grad_of(down), {}, dy, {}, h, t.value(down));
    ops::linear_backward(t.stream(), {h}, {}, {}, dy, {}, h, t.value(down));  // the gradient of h overwrites it
    if (normed) {
      ops::normed_swiglu_backward(t.stream(), t.grad_of(x), dgate_up, h, dy, both, z, rstd, x.value(),
                                  t.value(gate_up));
    } else {
      ops::swiglu_backward(t.stream(), {dy, true}, dgate_up, h, both, z, t.value(gate_up));
      t.pass_grad({x}, y);
    }
  });
  return y;
}

Var token_mixing(Tape& t, Var x, const Param& gate_up, const Param& down, double eps) {
  require(x.shape().rank() == 3, "token mixing: the input must be (B, T, D), not ", x.shape());
  const profile::Span span("token_mixing");
  Var y = t.output(x.shape(), t.wants_grad({x}, {&gate_up, &down}));
  Tensor kept, rstd;
  if (y.wants_grad()) {
    kept = t.keep({x.shape()[0], gate_up.shape[0], x.columns()});
    rstd = t.keep({x.shape()[0], x.columns()}, t.real_dtype());
  }
  ops::token_mixing_forward(t.stream(), y.value(), kept, rstd, x.value(), t.value(gate_up), t.value(down), eps);
  t.record("token_mixing", y, {&gate_up, &down}, [=, &t, &gate_up, &down] {
    ops::token_mixing_backward(t.stream(), t.grad_of(x), t.grad_of(gate_up), t.grad_of(down), y.grad(), y.value(), kept,
                               rstd, x.value(), t.value(gate_up), t.value(down));
  });
  return y;
}

}  // namespace lockstep
