#include "lockstep/models/emulator/emulator.hpp"

#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/models/weights.hpp"
#include "lockstep/nn/tangent.hpp"

namespace lockstep {
namespace {

ParamStore::Init xavier_and_zeros(std::int64_t fan_in, std::int64_t fan_out, bool bias) {
  return bias ? init::zeros() : init::xavier_normal(fan_in, fan_out);
}
/// source  biases: torch.nn.Linear.reset_parameters
ParamStore::Init xavier_and_torch(std::int64_t fan_in, std::int64_t fan_out, bool bias) {
  return bias ? init::uniform(1 / std::sqrt(static_cast<double>(fan_in))) : init::xavier_normal(fan_in, fan_out);
}

}  // namespace

std::int64_t EmulatorArch::parameters() const {
  const std::int64_t conv = conv_channels > 0 ? conv_channels * (conv_kernel + 1) : 0;
  return conv + (first_width() + 1) * hidden + (layers - 1) * (hidden + 1) * hidden + (hidden + 1) * n_out;
}

void EmulatorArch::check(Fault fault) const {
  const auto ask = [&](const Condition& condition, const auto&... parts) {
    detail::require_or(fault, condition, parts...);
  };
  ask(n_in >= 1 && n_out >= 1, "emulator with ", n_in, " inputs and ", n_out, " outputs: must be at least 1 each");
  ask(hidden >= 1, "emulator with hidden_size ", hidden, ": must be at least 1");
  ask(layers >= 1, "emulator with hidden_layers ", layers, ": must be at least 1");
  ask(conv_channels >= 0, "emulator with conv_channels ", conv_channels, ": must not be negative");
  ask(conv_channels == 0 || (conv_kernel >= 1 && conv_kernel % 2 == 1), "emulator with conv_kernel_size ", conv_kernel,
      ": must be odd");
  ask(activation != ops::Activation::none, "emulator with activation 'none': the hidden layers need one");
}

Emulator::Emulator(EmulatorArch arch, Moments moments, DType dtype, std::uint64_t seed, BiasInit bias_init)
    : Emulator(arch, std::move(moments), dtype, bias_init == BiasInit::torch ? xavier_and_torch : xavier_and_zeros) {
  params_->allocate(seed);
}

Emulator::Emulator(EmulatorArch arch, Moments moments, DType dtype, MakeInit init)
    : arch_(arch), moments_(std::move(moments)), params_(std::make_unique<ParamStore>(dtype)) {
  arch_.check(Fault::usage);
  check_moments(moments_, arch_.n_in, arch_.n_out, "emulator");
  require(dtype == DType::f32 || dtype == DType::f64, "emulator in ", dtype, ": must be f32 or f64");
  if (arch_.conv_channels > 0) {
    const std::int64_t in = arch_.conv_kernel, out = arch_.conv_channels * arch_.conv_kernel;
    const Conv1d conv = add_conv1d(*params_, "conv1d", arch_.conv_channels, arch_.conv_kernel, init(in, out, false),
                                   init(in, out, true));
    conv_weight_ = conv.weight;
    conv_bias_ = conv.bias;
  }
  for (std::int64_t k = 0; k <= arch_.layers; ++k) {
    const std::int64_t in = k == 0 ? arch_.first_width() : arch_.hidden;
    const std::int64_t out = k == arch_.layers ? arch_.n_out : arch_.hidden;
    const Linear layer =
        add_linear(*params_, join("network.", 2 * k), in, out, init(in, out, false), init(in, out, true));
    weights_.push_back(layer.weight);
    biases_.push_back(layer.bias);
  }
}

const Param& Emulator::weight(std::int64_t k) const { return *weights_.at(static_cast<std::size_t>(k)); }
const Param& Emulator::bias(std::int64_t k) const { return *biases_.at(static_cast<std::size_t>(k)); }
const Param& Emulator::conv_weight() const { return *conv_weight_; }
const Param& Emulator::conv_bias() const { return *conv_bias_; }

Var Emulator::forward(Tape& tape, Var z, EmulatorTrace* trace) const {
  const ops::Activation act = arch_.activation;
  const auto activated = [&](const auto& layer, Var x, const auto& apply, auto&& keep) {
    if (!trace) return apply(tape, x, layer, act);
    const Var pre = apply(tape, x, layer, ops::Activation::none);
    const Var post = activation(tape, pre, act);
    keep(pre, post);
    return post;
  };
  if (trace) *trace = {};
  Var h = z;
  if (arch_.conv_channels > 0)
    h = activated(
        Conv1d{conv_weight_, conv_bias_}, h,
        [](Tape& t, Var x, const Conv1d& layer, ops::Activation a) { return conv1d(t, x, layer, a); },
        [&](Var pre, Var post) {
          trace->conv_pre = pre;
          trace->conv_act = post;
        });
  for (std::int64_t k = 0; k < arch_.layers; ++k)
    h = activated(
        Linear{&weight(k), &bias(k)}, h,
        [](Tape& t, Var x, const Linear& layer, ops::Activation a) { return linear(t, x, layer, a); },
        [&](Var pre, Var post) {
          trace->pre.push_back(pre);
          trace->act.push_back(post);
        });
  return linear(tape, h, {&weight(arch_.layers), &bias(arch_.layers)});
}

void EmulatorTrace::name(const Observer& observer) const {
  if (conv_pre) {
    observer("conv_pre", conv_pre.value());
    observer("conv_act", conv_act.value());
  }
  for (std::size_t k = 0; k < pre.size(); ++k) {
    observer(join("layer_", 2 * k), pre[k].value());
    observer(join("layer_", 2 * k + 1), act[k].value());
  }
}

Var Emulator::jacobian_products(Tape& tape, const EmulatorTrace& trace, Var v, JacobianSide side) const {
  const ops::Activation act = arch_.activation;
  const std::int64_t layers = arch_.layers;
  const auto slope = [&](Var s, std::int64_t k) { return activation_tangent(tape, s, trace.pre[k], act); };
  if (side == JacobianSide::inputs) {
    if (conv_weight_) v = activation_tangent(tape, conv1d(tape, v, {conv_weight_, nullptr}), trace.conv_pre, act);
    for (std::int64_t k = 0; k < layers; ++k) v = slope(linear(tape, v, {&weight(k), nullptr}), k);
    return linear(tape, v, {&weight(layers), nullptr});
  }
  for (std::int64_t k = layers; k > 0; --k) v = slope(linear_adjoint(tape, v, weight(k)), k - 1);
  v = linear_adjoint(tape, v, weight(0));
  return conv_weight_ ? conv1d_adjoint(tape, activation_tangent(tape, v, trace.conv_pre, act), *conv_weight_) : v;
}

Emulator Emulator::as(DType dtype) const {
  Emulator copy(arch_, moments_, dtype, xavier_and_zeros);
  copy.params_->allocate();
  for (const Param& from : params_->all()) assign(copy.params_->at(from.name), array_of(from));
  return copy;
}

}  // namespace lockstep
