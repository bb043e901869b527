#include <algorithm>
#include <cmath>

#include "lockstep/base/log.hpp"
#include "lockstep/models/emulator/emulator_operators.hpp"
#include "lockstep/nn/own_tape.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/optim/schedule.hpp"
#include "lockstep/step/sharded_step.hpp"
#include "lockstep/tasks/emulator/emulator_task.hpp"
#include "tasks/verifier.hpp"

namespace lockstep {
namespace {

// Tolerances in single precision, relative to an array's largest value. In brackets: the difference between PyTorch's
// single and double precision.
constexpr double kDouble = 1e-12;
constexpr Tolerance kOutput{2e-6, kDouble};    // [2.2e-7]
constexpr Tolerance kJacobian{3e-6, kDouble};  // [5.3e-7]
constexpr Tolerance kGradient{5e-6, kDouble};  // [1.1e-6]
constexpr double kWeights = 2e-3;  // times the learning rate, absolute: Adam divides small gradients by their own size
constexpr Tolerance kSquares{1e-5, kDouble};
/// Of a difference of nearly equal predictions: its noise is 1e-7 of a prediction, not of the remainder.
constexpr Tolerance kRemainder{1e-2, kDouble};
constexpr Tolerance kCondition{1e-4, kDouble};  // the smallest singular value has the absolute error of the largest

/// The reference's rows as a model: step s takes the rows of batch s.
class ReferenceModel final : public EmulatorTask {
 public:
  ReferenceModel(Options options, EmulatorData data, std::vector<std::vector<std::int32_t>> batches)
      : EmulatorTask(std::move(options), std::move(data)), batches_(std::move(batches)) {}
  const DrawnShard& draw(Arena& host, const Shard& shard) const override {
    const auto rows = batch(shard.step).subspan(shard.first, shard.count);
    const auto kept = host.array<std::int32_t>(shard.count);
    std::ranges::copy(rows, kept.begin());
    ops::RowDraw order = rows_of(shard);
    order.rows = kept.data();
    return draw_rows(host, order, shard);
  }
  std::span<const std::int32_t> batch(std::int64_t step) const { return batches_.at(static_cast<std::size_t>(step)); }
  std::int64_t batches() const { return std::ssize(batches_); }
  using EmulatorTask::normalised;

 private:
  std::vector<std::vector<std::int32_t>> batches_;
};

Tensor place(DataMemory& data_memory, const H5File& file, const std::string& dataset) {
  const H5Info info = file.info(dataset);
  return data_memory.place(DType::f32, Shape(info.shape),
                           [&](const Tensor& to) { file.read_into<float>(dataset, to.span<float>()); });
}

/// All rows of the reference as training rows.
EmulatorData reference_data(const H5File& file, DataMemory& data_memory) {
  EmulatorData data;
  data.path = file.path();
  data.x = place(data_memory, file, "/inputs/x");
  data.y = place(data_memory, file, "/inputs/t");
  data.order = data_memory.place(DType::i32, {data.rows()}, [&](const Tensor& to) {
    std::iota(to.data<std::int32_t>(), to.data<std::int32_t>() + to.size(), 0);
  });
  data.count = {data.rows(), 0, 0};
  data.moments = read_moments(file, "/norm", data.n_in(), data.n_out());
  const auto names = [](const char* prefix, std::int64_t count) {
    std::vector<std::string> out;
    for (std::int64_t i = 0; i < count; ++i) out.push_back(prefix + std::to_string(i));
    return out;
  };
  data.variables.input_names = names("in", data.n_in());
  data.variables.output_names = names("out", data.n_out());
  data.variables.input_cf.resize(data.variables.input_names.size());
  data.variables.output_cf.resize(data.variables.output_names.size());
  return data;
}

EmulatorLoss loss_of(const H5File& file) {
  return {.kind = named<ops::Regression>(file.text_attribute("/", "loss"), "loss"),
          .smooth_weight = file.real_attribute("/", "smooth_weight"),
          .smooth_order = file.int_attribute("/", "smooth_order")};
}

ReferenceModel make_model(const H5File& file, DataMemory& data_memory, DType dtype) {
  EmulatorTask::Options options;
  options.dtype = dtype;
  options.arch.hidden = file.int_attribute("/", "hidden");
  options.arch.layers = file.int_attribute("/", "layers");
  options.arch.activation = named<ops::Activation>(file.text_attribute("/", "activation"), "activation");
  options.arch.conv_channels = file.int_attribute("/", "conv_channels");
  options.arch.conv_kernel = file.int_attribute("/", "conv_kernel");
  options.loss = loss_of(file);
  std::vector<std::vector<std::int32_t>> batches;
  for (int b = 0; file.has("/batches/" + std::to_string(b)); ++b)
    batches.push_back(file.read<std::int32_t>("/batches/" + std::to_string(b)));
  ReferenceModel model(options, reference_data(file, data_memory), std::move(batches));
  load_reference_weights(model.params(), file);
  return model;
}

/// The network's values layer by layer, one node of the tape each.
void verify_values(Verifier& v, const ReferenceModel& model) {
  OwnTape tape(model.emulator().params());
  const auto output = v.relative("outputs", kOutput);
  const auto rows = model.normalised(tape, model.data().rows_of(Split::train));
  output("x_norm", rows.z);
  output("t_norm", rows.t);
  EmulatorTrace trace;
  const Var y = model.emulator().forward(tape, tape.constant(rows.z), &trace);
  trace.name(output);
  output(join("layer_", 2 * trace.pre.size()), y.value());
  output("y_norm", y.value());
}

/// The physical operators, from states in the same type.
template <class T>
class Products {
 public:
  explicit Products(const ReferenceModel& model)
      : operators_(model.emulator()), n_(model.data().rows()), in_(model.data().n_in()), out_(model.data().n_out()) {}

  std::vector<double> predict(const std::vector<T>& x) const {
    std::vector<T> y(size(out_));
    operators_.template predict<T>(n_, view(x, in_), {y.data(), out_, 1});
    return {y.begin(), y.end()};
  }

  void verify(Verifier& v) const {
    const std::vector<T> x = v.file().read<T>("/inputs/x"), dx = v.file().read<T>("/inputs/dx"),
                         dy = v.file().read<T>("/inputs/dy");
    const std::vector<double> prediction = predict(x);
    v.relative("outputs", "predict", prediction, kOutput);
    const auto product = v.relative("outputs", kJacobian);
    std::vector<T> j(size(out_ * in_)), k(size(out_)), g(size(in_));
    for (const JacobianUnits units : {JacobianUnits::normalised, JacobianUnits::physical}) {
      operators_.template jacobian<T>(n_, view(x, in_), {}, units, j.data());
      product(units == JacobianUnits::physical ? "jac_physical" : "jac", j);
    }
    const auto products = [&](const std::string& remark) {
      product("jvp_physical", k, remark);
      product("vjp_physical", g, remark);
      product("adjoint_lhs", row_products(k, dy, out_), remark);
      product("adjoint_rhs", row_products(dx, g, in_), remark);
    };
    const auto linear = operators_.template linearize<T>(n_, view(x, in_), {});
    linear.template tangent<T>(view(dx, in_), {k.data(), out_, 1});
    linear.template adjoint<T>(view(dy, out_), {g.data(), in_, 1});
    products("linearised once");
    operators_.template tangent<T>(n_, view(x, in_), {}, view(dx, in_), {k.data(), out_, 1});
    operators_.template adjoint<T>(n_, view(x, in_), {}, view(dy, out_), {g.data(), in_, 1});
    products("");
    if (!v.has("outputs", "taylor_eps")) return;
    std::vector<double> remainders;
    for (const double eps : v.reference("outputs", "taylor_eps")) {
      std::vector<T> moved = x;
      for (std::size_t i = 0; i < moved.size(); ++i) moved[i] += static_cast<T>(eps) * dx[i];
      const std::vector<double> there = predict(moved);
      double sum = 0;
      for (std::size_t i = 0; i < there.size(); ++i)
        sum += std::pow(there[i] - prediction[i] - eps * static_cast<double>(k[i]), 2);
      remainders.push_back(std::sqrt(sum));
    }
    v.relative("outputs", "taylor_remainder", remainders, kRemainder);
  }

 private:
  std::size_t size(std::int64_t columns) const { return static_cast<std::size_t>(n_ * columns); }
  static StateView<const T> view(const std::vector<T>& values, std::int64_t columns) {
    return {values.data(), columns, 1};
  }
  std::vector<double> row_products(const std::vector<T>& a, const std::vector<T>& b, std::int64_t columns) const {
    std::vector<double> sums(n_, 0);
    for (std::size_t i = 0; i < a.size(); ++i)
      sums[i / static_cast<std::size_t>(columns)] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    return sums;
  }
  EmulatorOperators<T> operators_;
  std::int64_t n_, in_, out_;
};

void verify_sensitivity(Verifier& v, const ReferenceModel& model) {
  const SensitivityMetrics m = sensitivity_metrics(model.emulator(), model.data().rows(), model.data().x.row<float>(0));
  const auto metric = v.relative("jac_metrics", kJacobian);
  metric("rows", m.rows);
  metric("frobenius_norm", m.frobenius_norm);
  metric("mean_abs_gradient", m.mean_abs_gradient);
  metric("spectral_norm", m.spectral_norm);
  v.relative("jac_metrics", "stability", m.stability, kCondition);
  metric("max_gradient", m.max_gradient);
  metric("gradient_std", m.gradient_std);
  metric("feature_sensitivity", m.feature_sensitivity);
  v.relative("jac_metrics", "most_sensitive_feature", static_cast<double>(m.most_sensitive_feature), {0, kDouble});
}

/// Gradients of the first batch by one node per layer, on this rank alone.
void verify_layer_gradients(Verifier& v, ReferenceModel& model, const EmulatorLoss& loss) {
  Gradients gradients(model.params());
  OwnTape tape(model.params().storage(), Tape::Mode::train, &gradients, model.params().device());
  const std::span<const std::int32_t> batch = model.batch(0);
  const auto rows = model.normalised(tape, std::vector<std::int64_t>(batch.begin(), batch.end()));
  const Var y = model.emulator().forward(tape, tape.constant(rows.z));
  tape.backward(emulator_loss(tape, y, rows.t, loss, model.data().moments));
  for (const auto& [name, values] :
       by_parameter(model.params(), gradients.flat(), 1 / static_cast<double>(model.batch(0).size())))
    v.relative("grads", name, values, kGradient, "by layer");
}

/// The mean loss over all rows, as an evaluation finds it.
double mean_loss(const ReferenceModel& model) {
  OwnTape tape(model.emulator().params());
  std::vector<double> sums(model.sum_count(), 0);
  model.evaluate(tape, Split::train, 0, model.size(Split::train), sums.data());
  return model.metrics(Split::train, sums).front().value;
}

LrSchedule make_schedule(const H5File& file, double lr) {
  ScheduleOptions options;
  const std::string name = file.text_attribute("/", "schedule");
  options.name = name == "none" ? "constant" : name;
  options.unit = "step";
  options.step_size = file.int_attribute("/", "step_size");
  options.gamma = file.real_attribute("/", "gamma");
  options.total = file.int_attribute("/", "t_max");
  return {options, lr};
}

std::unique_ptr<Optimizer> make_reference_optimizer(const H5File& file, ParamStore& params) {
  OptimizerOptions options;
  options.name = file.text_attribute("/", "optimizer");
  const auto betas = file.real_list("/", "adam_betas", 2);
  options.beta1 = betas[0];
  options.beta2 = betas[1];
  options.eps = file.real_attribute("/", "adam_eps");
  options.weight_decay = file.real_attribute("/", "weight_decay");
  options.momentum = file.real_attribute("/", "momentum");
  return make_optimizer(options, params, trainable_ranges(params));
}

/// The batches as training steps over all ranks, and the resulting state.
template <class T>
void verify_steps(Verifier& v, World& world, ReferenceModel& model, const VerifyOptions& options) {
  const H5File& file = v.file();
  const double lr = file.real_attribute("/", "lr"), decay = file.real_attribute("/", "ema");
  const Tolerance weights(kWeights * lr, kDouble);
  const LrSchedule schedule = make_schedule(file, lr);
  const auto optimizer = make_reference_optimizer(file, model.params());
  Ema ema(model.params(), decay);
  const auto step = make_sharded_step(world.communicator(), model, options.step);
  std::vector<double> losses, rates;
  for (std::int64_t s = 0; s < model.batches(); ++s) {
    const StepSums sums = step->run({.step = s, .count = static_cast<std::int64_t>(model.batch(s).size())});
    losses.push_back(sums.loss / sums.weight);
    rates.push_back(schedule.lr(s, 0));
    if (s == 0) {
      v.relative("outputs", "loss_batch0", losses[0], kOutput);
      for (const auto& [name, values] : by_parameter(model.params(), step->gradient(), 1 / sums.weight))
        v.relative("grads", name, values, kGradient);
    }
    optimizer->step(step->gradient(), rates.back(), 1 / sums.weight, decay > 0 ? &ema : nullptr);
  }
  v.relative("steps", "loss", losses, kOutput);
  v.relative("steps", "lr", rates, 1e-12);
  for (const Param& p : model.params().all()) v.absolute("after_steps", p.name, p.value, weights);
  for (const NamedTensor& slot : optimizer->state())
    v.relative("opt_state", slot.name, slot.value, slot.name.starts_with("exp_avg_sq/") ? kSquares : kGradient);
  if (decay > 0)
    for (const NamedTensor& shadow : ema.state()) v.absolute("after_steps_ema", shadow.name, shadow.value, weights);
  v.relative("outputs", "predict_after_steps", Products<T>(model).predict(file.read<T>("/inputs/x")), kOutput);
}

template <class T>
void verify_network(Verifier& v, World& world, const H5File& file, const VerifyOptions& options) {
  LocalDataMemory data_memory;
  ReferenceModel model = make_model(file, data_memory, dtype_of<T>::value);
  model.move_to(options.device);
  if (is_half(options.storage)) model.params().store_as(options.storage);
  verify_values(v, model);
  Products<T>(model).verify(v);
  verify_sensitivity(v, model);
  v.relative("outputs", "loss_all", mean_loss(model), kOutput);
  verify_layer_gradients(v, model, loss_of(file));
  verify_steps<T>(v, world, model, options);
}

}  // namespace

void verify_emulator(World& world, const H5File& file, const VerifyOptions& options, ReferenceReport& report) {
  if (!file.has("/weights")) return;
  Verifier v(file, options, report);
  if (options.f64)
    verify_network<double>(v, world, file, options);
  else
    verify_network<float>(v, world, file, options);
}

}  // namespace lockstep
