#include "lockstep/tasks/emulator/emulator_task.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/base/profile.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/base/units.hpp"
#include "lockstep/data/gpu_copy.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/models/emulator/emulator_metadata.hpp"
#include "lockstep/models/emulator/emulator_operators.hpp"
#include "lockstep/nn/loss.hpp"
#include "lockstep/nn/transfer.hpp"
#include "lockstep/ops/elementwise.hpp"
#include "lockstep/ops/regression_loss.hpp"
#include "lockstep/tensor/on_device.hpp"
#include "tasks/emulator/affine_guess.hpp"
#include "tasks/emulator/constraint.hpp"
#include "tasks/emulator/emulator_metrics.hpp"
#include "tasks/emulator/jacobian_loss.hpp"

namespace lockstep {
namespace {

EmulatorArch arch_for(EmulatorArch arch, const EmulatorData& data) {
  arch.n_in = data.n_in();
  arch.n_out = data.n_out();
  return arch;
}

std::int64_t find_aice(const EmulatorVariables& variables) {
  for (std::size_t o = 0; o < variables.output_names.size(); ++o)
    if (variables.output_names[o] == "aice" || variables.output_cf[o] == "sea_ice_area_fraction")
      return static_cast<std::int64_t>(o);
  return -1;
}

/// Normalises rows of a data set into `to` (rows, columns).
template <class T>
void normalise(Arena& host, const RowArray& from, const std::vector<double>& mean, const std::vector<double>& std,
               std::span<const std::int64_t> rows, T* __restrict to) {
  const std::int64_t columns = from.shape().columns();
  const Tensor moments = allocate(host, dtype_of<T>::value, {2, columns});
  T* const __restrict m = moments.template data<T>();
  T* const __restrict s = m + columns;
  for (std::int64_t c = 0; c < columns; ++c) {
    m[c] = static_cast<T>(mean[c]);
    s[c] = static_cast<T>(std[c]);
  }
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const float* row = from.row<float>(rows[r]);
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c) to[c] = (static_cast<T>(row[c]) - m[c]) / s[c];
    to += columns;
  }
}

}  // namespace

void EmulatorLoss::check(std::int64_t n_out) const {
  require_usage(smooth_weight >= 0, "loss with smooth_weight ", smooth_weight, ": must not be negative");
  require_usage(smooth_order == 1 || smooth_order == 2, "loss with smooth_order ", smooth_order, ": must be 1 or 2");
  require_usage(smooth_weight == 0 || n_out > smooth_order, "loss with smooth_weight ", smooth_weight,
                ": differences of order ", smooth_order, " need at least ", smooth_order + 1,
                " outputs, the data set has ", n_out);
  require_usage(constraint_weight >= 0, "loss with constraint_weight ", constraint_weight, ": must not be negative");
  require_usage(jacobian >= 0 && directions >= 0, "loss with jacobian ", jacobian, " and jacobian_directions ",
                directions, ": must not be negative");
}

std::shared_ptr<const Constraint> EmulatorLoss::checked_for(const std::filesystem::path& data,
                                                            const EmulatorVariables& variables,
                                                            bool has_jacobian) const {
  check(std::ssize(variables.output_names));
  require_usage(jacobian == 0 || has_jacobian, "option loss.jacobian = ", jacobian, ": the data set '", data.string(),
                "' has no Jacobians /jac (rows, outputs, inputs); set it to 0, or use a data set with Jacobians");
  return constraint.empty() ? nullptr : std::make_shared<const Constraint>(constraint, variables);
}

void EmulatorLoss::check_device(bool on_gpu) const {
  require_usage(constraint.empty() || !on_gpu, "option loss.constraint = ", constraint,
                ": constraints run on the processor only; set run.device = cpu, or no constraint");
}

Var emulator_loss(Tape& tape, Var y, const Tensor& t, const EmulatorLoss& loss, const Moments& moments,
                  const Tensor& weights) {
  const auto n_out = static_cast<double>(y.columns());
  const Var fit = regression_loss(tape, y, t, loss.kind, 1 / n_out, weights);
  if (loss.smooth_weight == 0) return fit;
  const auto order = static_cast<int>(loss.smooth_order);
  return add(
      tape, fit,
      smoothness_loss(tape, y, moments.output_mean, moments.output_std, order, loss.smooth_weight / (n_out - order)));
}

namespace {
/// The value of emulator_loss, summed in f64.
double loss_sum(Tape& tape, const Tensor& y, const Tensor& t, const EmulatorLoss& loss, const Moments& moments) {
  const Tensor sums = tape.keep({2}, DType::f64);
  fill_zero(tape.stream(), sums);
  ops::regression_loss(tape.stream(), sums.slice(0, 1), {}, y, t, loss.kind);
  if (loss.smooth_weight > 0) {
    const auto there = [&](const std::vector<double>& values) {
      const Tensor copy = allocate(tape.host_arena(), DType::f64, {std::ssize(values)});
      std::ranges::copy(values, copy.data<double>());
      return std::span<const double>(copy.span<double>());
    };
    ops::smoothness_loss(tape.stream(), sums.slice(1, 1), {}, y, there(moments.output_mean), there(moments.output_std),
                         static_cast<int>(loss.smooth_order));
  }
  const Tensor read = on_host(tape.stream(), tape.arena(), sums);
  const auto n_out = static_cast<double>(y.columns());
  const double fit = read.data<double>()[0] / n_out;
  if (loss.smooth_weight == 0) return fit;
  return fit + loss.smooth_weight / (n_out - static_cast<double>(loss.smooth_order)) * read.data<double>()[1];
}
}  // namespace

EmulatorTask::EmulatorTask(Options options, EmulatorData data)
    : options_(std::move(options)),
      data_(std::move(data)),
      emulator_(arch_for(options_.arch, data_), data_.moments, options_.dtype, options_.seed, options_.bias_init),
      aice_(find_aice(data_.variables)) {
  constraint_ = options_.loss.checked_for(data_.path, data_.variables, data_.has_jacobian());
  if (aice_ >= 0 && same_units(data_.variables.output_units[static_cast<std::size_t>(aice_)], "%")) whole_ice_ = 100;
}

void EmulatorTask::set_samples(const Tensor& x, const Tensor& y, const Tensor& order, const Tensor& weights) {
  const EmulatorLoss& loss = options_.loss;
  require_usage(!weights || (loss.smooth_weight == 0 && loss.jacobian == 0 && !constraint_),
                "weights of columns: the loss has further terms; set loss.smooth_weight and loss.jacobian to 0 and "
                "loss.constraint to nothing, or pass no weights");
  data_.x = x;
  data_.y = y;
  data_.order = order;
  data_.weights = weights;
  data_.count = {order.size(), 0, 0};
}

void EmulatorTask::move_to(Device device) {
  options_.loss.check_device(device.is_cuda());
  ShardTask::move_to(device);
  table_.reset();
  on_gpu_.clear();
  if (!device.is_cuda() || options_.loss.jacobian > 0 || !data_.x.whole()) return;
  if (data_.order.dtype() != DType::i32) return;  // kernels have row numbers of 32 bits
  const std::int64_t in = data_.n_in(), out = data_.n_out();
  const Tensor training = data_.order.slice(0, size(Split::train));
  const std::size_t bytes = data_.x.size_bytes() + data_.y.size_bytes() + training.size_bytes();
  // Half of the memory: the network and its activations are small.
  if (!may_copy_to_gpu(device, "the rows", bytes, 0.5)) return;
  Stream stream(device);
  const auto moved = [&](const Tensor& from) {
    const Tensor& to = on_gpu_.emplace_back(from.dtype(), from.shape(), device, MemoryUse::data);
    copy(stream, to, from);
    stream.synchronize();
    return to;
  };
  const OwnedTensor moments(emulator_.dtype(), {2 * (in + out)});
  visit_float(emulator_.dtype(), [&]<class T>() {
    T* to = moments.view().data<T>();
    for (const auto& [name, part] : kMoments)
      to = std::ranges::transform(data_.moments.*part, to, [](double v) { return static_cast<T>(v); }).out;
  });
  table_ = {.x = moved(data_.x.all()), .y = moved(data_.y.all()), .order = moved(training), .moments = moved(moments)};
}

const ops::SampleTable* EmulatorTask::table() const {
  return table_ && emulator_.params().storage() == emulator_.dtype() ? &*table_ : nullptr;
}

std::optional<DenseNetwork> EmulatorTask::dense_network() const {
  const EmulatorArch& arch = emulator_.arch();
  if (table() == nullptr || arch.conv_channels > 0 || options_.loss.smooth_weight > 0 || constraint_) return {};
  DenseNetwork network = {.weights = {},
                          .biases = {},
                          .activation = arch.activation,
                          .loss = options_.loss.kind,
                          .loss_scale = 1 / static_cast<double>(arch.n_out),
                          .table = *table()};
  for (std::int64_t k = 0; k <= arch.layers; ++k) {
    network.weights.push_back(&emulator_.weight(k));
    network.biases.push_back(&emulator_.bias(k));
  }
  return network;
}

void EmulatorTask::require_in_domain(std::int64_t row, const std::vector<double>& y, const std::vector<double>& values,
                                     const std::vector<double>& slope) const {
  const auto finite = [](const std::vector<double>& all) {
    return std::ranges::all_of(all, [](double v) { return std::isfinite(v); });
  };
  if ((finite(values) && finite(slope)) || !finite(y)) return;  // not finite: the training diverges
  std::string predicted;
  for (std::size_t o = 0; o < y.size(); ++o)
    predicted += join(o == 0 ? "" : ", ", data_.variables.output_names[o], " = ", y[o]);
  throw Error(Fault::usage, join("option loss.constraint = ", options_.loss.constraint,
                                 ": a value or its slope is not finite in row ", row, ", for the prediction ",
                                 predicted, "; keep arguments in their domain, as log(max(aice, 0.001)) does"));
}

double EmulatorTask::constrain(std::span<const std::int64_t> rows, const Tensor& y, const Tensor& dy,
                               double* sizes) const {
  const auto out = static_cast<std::size_t>(data_.n_out());
  std::vector<double> physical(out), slope(out), values(constraint_->size());
  double sum = 0;
  visit_float(y.dtype(), [&]<class T>() {
    const T* from = y.data<T>();
    T* to = dy.data<T>();
    for (const std::int64_t row : rows) {
      const std::vector<double>&mean = data_.moments.output_mean, &std = data_.moments.output_std;
      for (std::size_t o = 0; o < out; ++o) physical[o] = static_cast<double>(from[o]) * std[o] + mean[o];
      constraint_->evaluate(data_.x.row<float>(row), physical.data(), values.data(), to ? slope.data() : nullptr);
      if (to) require_in_domain(row, physical, values, slope);
      for (std::size_t i = 0; i < values.size(); ++i) {
        sum += values[i] * values[i];
        if (sizes) sizes[i] += std::abs(values[i]);
      }
      for (std::size_t o = 0; to && o < out; ++o) to[o] = static_cast<T>(slope[o] * std[o]);
      from += out;
      if (to) to += out;
    }
  });
  return sum;
}

std::int64_t EmulatorTask::size(Split split) const { return data_.count[static_cast<std::size_t>(split)]; }

struct EmulatorTask::Batch : DrawnShard {
  std::span<const std::int64_t> indices = {};  ///< of the rows, and
  Rows normalised = {};                        ///< their values, unless DrawnShard::rows has them
  JacobianTargets jacobian = {};               ///< with loss.jacobian
};

EmulatorTask::Rows EmulatorTask::rows_in(Arena& host, DType dtype, std::span<const std::int64_t> rows) const {
  const auto count = std::ssize(rows);
  Rows out{allocate(host, dtype, {count, data_.n_in()}), allocate(host, dtype, {count, data_.n_out()})};
  if (data_.weights) out.weights = allocate(host, dtype, {count});
  visit_float(dtype, [&]<class T>() {
    for (std::int64_t i = 0; data_.weights && i < count; ++i)
      out.weights.data<T>()[i] = static_cast<T>(data_.weights.data<float>()[rows[i]]);
    normalise(host, data_.x, data_.moments.input_mean, data_.moments.input_std, rows, out.z.data<T>());
    normalise(host, data_.y, data_.moments.output_mean, data_.moments.output_std, rows, out.t.data<T>());
  });
  return out;
}

EmulatorTask::Rows EmulatorTask::normalised(Tape& tape, std::span<const std::int64_t> rows) const {
  const Rows host = rows_in(tape.host_arena(), tape.real_dtype(), rows);
  return {to_tape(tape, host.z), on_device(tape.stream(), tape.arena(), host.t)};
}

const EmulatorTask::Batch& EmulatorTask::batch_of(Arena& host, std::span<const std::int64_t> rows,
                                                  const Shard& shard) const {
  const profile::Span making("batch", profile::Kind::phase);
  const DType dtype = real_dtype(emulator_.params().storage());
  auto* batch = new (host.allocate(sizeof(Batch)))
      Batch{{.weight = static_cast<double>(shard.count)}, rows, rows_in(host, dtype, rows), {}};
  if (data_.weights) {
    batch->weight = 0;
    for (const std::int64_t row : rows) batch->weight += static_cast<double>(data_.weights.data<float>()[row]);
  }
  if (options_.loss.jacobian > 0)
    batch->jacobian = jacobian_targets(host, dtype, data_, rows, shard, options_.loss.directions);
  return *batch;
}

ShardLoss EmulatorTask::loss(Tape& tape, const Shard& shard) const {
  const auto& batch = samples_of<Batch>(tape.host_arena(), shard);
  Rows samples = batch.normalised;
  if (batch.rows != nullptr) {
    samples = {tape.keep({shard.count, data_.n_in()}), tape.keep({shard.count, data_.n_out()})};
    if (batch.rows->weights != nullptr) samples.weights = tape.keep({shard.count});
    ops::take_samples(tape.stream(), samples.z, samples.t, *table_, batch.rows, samples.weights);
  } else {
    samples = {to_tape(tape, samples.z), on_device(tape.stream(), tape.arena(), samples.t), samples.weights};
  }
  const Var z = tape.constant(samples.z);
  const Tensor& t = samples.t;
  EmulatorTrace trace;
  const EmulatorLoss& terms = options_.loss;
  const Var y = emulator_.forward(tape, z, terms.jacobian > 0 ? &trace : nullptr);
  Var sum = emulator_loss(tape, y, t, terms, data_.moments, samples.weights);
  if (terms.jacobian > 0) sum = add(tape, sum, jacobian_loss(tape, emulator_, trace, batch.jacobian, terms.jacobian));
  if (constraint_) {
    const Var penalty = tape.output({}, tape.wants_grad({y}));
    const Tensor slope = penalty.wants_grad() ? tape.keep(y.shape()) : Tensor{};
    const double value = terms.constraint_weight * constrain(batch.indices, y.value(), slope, nullptr);
    visit_float(tape.dtype(), [&]<class T>() { *penalty.value().data<T>() = static_cast<T>(value); });
    tape.record("constraint", penalty, {}, [=, &tape, weight = terms.constraint_weight] {
      ops::scale_by(tape.stream(), tape.grad_of(y), slope, penalty.grad(), weight);
    });
    sum = add(tape, sum, penalty);
  }
  return {sum, batch.weight};
}

SampleWork EmulatorTask::work() const {
  const EmulatorArch& arch = emulator_.arch();
  const std::int64_t first =
      arch.conv_channels > 0 ? arch.conv_channels * arch.conv_kernel * arch.n_in : arch.hidden * arch.n_in;
  const std::int64_t directions =
      options_.loss.jacobian > 0 ? jacobian_directions(options_.loss.directions, arch.n_in, arch.n_out) : 0;
  return {2.0 * static_cast<double>(3 * (1 + directions) * arch.multiplications() - first)};
}

ops::RowDraw EmulatorTask::rows_of(const Shard& shard) const {
  return {.order = Permutation(size(Split::train), shard.seed, static_cast<std::uint64_t>(shard.epoch)),
          .seed = shard.seed,
          .first = shard.first,
          .count = shard.count,
          .bootstrap = options_.bootstrap ? 1 : 0};
}

const DrawnShard& EmulatorTask::draw(Arena& host, const Shard& shard) const {
  return draw_rows(host, rows_of(shard), shard);
}

const DrawnShard& EmulatorTask::draw_rows(Arena& host, const ops::RowDraw& order, const Shard& shard) const {
  profile::Span drawing("draw samples", profile::Kind::phase);
  if (table() != nullptr) {
    const auto* rows = new (host.allocate(sizeof(ops::RowDraw))) ops::RowDraw(order);
    double weight = data_.weights ? 0 : static_cast<double>(shard.count);
    for (std::int64_t i = 0; data_.weights && i < shard.count; ++i) weight += data_.weights.data<float>()[order(i)];
    return *new (host.allocate(sizeof(Batch))) Batch{{.weight = weight, .rows = rows}};
  }
  const auto rows = host.array<std::int64_t>(shard.count);
  // The rows of a shuffled epoch are scattered in memory. A row's number is looked up kAhead samples after its position
  // is drawn, so that neither waits for memory.
  constexpr std::int64_t kAhead = 16;
  for (std::int64_t i = 0; i < shard.count + kAhead; ++i) {
    if (i < shard.count) {
      const std::int64_t position = order(i);
      data_.prefetch_row_of(position);
      rows[i] = position;
    }
    if (i < kAhead) continue;
    std::int64_t& row = rows[i - kAhead];
    row = data_.row_of(Split::train, row);
    const float* x = data_.x.row<float>(row);
    __builtin_prefetch(x);
    __builtin_prefetch(x + data_.n_in() - 1);
    __builtin_prefetch(data_.y.row<float>(row));
  }
  drawing.end();
  return batch_of(host, rows, shard);
}

void EmulatorTask::reads(const Shard& shard, std::vector<std::int64_t>& rows) const {
  const ops::RowDraw order = rows_of(shard);
  for (std::int64_t i = 0; i < shard.count; ++i) rows.push_back(data_.row_of(Split::train, order(i)));
}

emulator_metrics::Layout EmulatorTask::layout() const {
  return {data_.n_out(), aice_ >= 0, data_.has_jacobian(), members(), constraint_ ? constraint_->size() : 0};
}

std::int64_t EmulatorTask::sum_count() const { return emulator_metrics::Sums::count(layout()); }

std::vector<ParamStore*> EmulatorTask::make_ensemble(std::int64_t count) {
  std::vector<ParamStore*> all = {&emulator_.params()};
  for (others_.reserve(count - 1); members() < count;) {
    ParamStore& its = others_.emplace_back(emulator_.as(emulator_.dtype())).params();
    its.move_to(emulator_.params().device());
    its.store_as(emulator_.params().storage());
    all.push_back(&its);
  }
  return all;
}

void EmulatorTask::require_member(const H5File& checkpoint) const {
  require_data(read_emulator_metadata(checkpoint).arch == emulator_.arch(), "making an ensemble: the network of '",
               checkpoint.path().string(), "' has another architecture than that of the first member");
}

void EmulatorTask::begin_evaluation() {
  if (others_.empty()) return;
  Stream stream(emulator_.params().device());
  for (Emulator& other : others_) other.params().refresh(stream);
}

std::vector<Baseline> EmulatorTask::baselines() const {
  const auto baseline = [&](const char* name, const AffineGuess& guess) {
    return Baseline{name, [this, guess](Tape& tape, Split split, std::int64_t first, std::int64_t count, double* sums) {
                      score(tape, split, first, count, &guess, sums);
                    }};
  };
  bool persistent = false;
  const AffineGuess same = persistence(data_, persistent);
  return {baseline(persistent ? "persistence" : "training mean", same),
          baseline("linear regression", linear_regression(data_))};
}

void EmulatorTask::score(Tape& tape, Split split, std::int64_t first, std::int64_t count, const AffineGuess* guess,
                         double* sums) const {
  using namespace emulator_metrics;
  const Sums to(sums, layout());
  const std::vector<std::int64_t> numbers = data_.rows_of(split, first, count);
  const std::int64_t in = data_.n_in(), out = data_.n_out();
  const auto row_of = [&](std::int64_t i) { return numbers[i]; };
  const Moments& m = data_.moments;
  const Rows rows = normalised(tape, numbers);
  Tensor y;
  if (guess == nullptr && others_.empty()) {
    y = emulator_.forward(tape, tape.constant(rows.z)).value();
  } else {
    const Tensor host = allocate(tape.host_arena(), tape.real_dtype(), {count, out});
    if (guess == nullptr) {
      std::vector<Tensor> each = {to_host(tape, emulator_.forward(tape, tape.constant(rows.z)).value())};
      for (const Emulator& other : others_)
        each.push_back(to_host(tape, other.forward(tape, tape.constant(rows.z)).value()));
      add_ensemble(to, each, to_host(tape, rows.t), host);
    } else {
      to.forget_ensemble();  // a guess has no members
      std::vector<double> t(out);
      for (std::int64_t r = 0; r < count; ++r) {
        guess->predict(m, {data_.x.row<float>(row_of(r)), static_cast<std::size_t>(in)}, t);
        visit_float(host.dtype(), [&]<class T>() {
          std::ranges::transform(t, host.data<T>() + r * out, [](double v) { return static_cast<T>(v); });
        });
      }
    }
    y = on_device(tape.stream(), tape.arena(), host);
  }
  to.rows[0] += static_cast<double>(count);
  to.rows[1] += loss_sum(tape, y, rows.t, options_.loss, m);
  const Tensor y_read = to_host(tape, y), t_read = to_host(tape, rows.t);
  if (constraint_) to.rows[1] += options_.loss.constraint_weight * constrain(numbers, y_read, {}, to.constraint);
  visit_float(tape.real_dtype(), [&]<class T>() {
    const T* predicted = y_read.data<T>();
    const T* target = t_read.data<T>();
    for (std::int64_t r = 0; r < count; ++r)
      for (std::int64_t o = 0; o < out; ++o) {
        const double p = static_cast<double>(predicted[r * out + o]), t = static_cast<double>(target[r * out + o]),
                     e = p - t;
        OutputSums& s = to.output[o];
        s.ee += e * e;
        s.abs_e += std::abs(e);
        s.e += e;
        s.t += t;
        s.tt += t * t;
        s.p += p;
        s.pp += p * p;
        s.tp += t * p;
        if (o != aice_) continue;
        const double aice = static_cast<double>(data_.y.row<float>(row_of(r))[o]) / whole_ice_,
                     error = e * m.output_std[o];
        const auto add_to = [&](RangeSums& range) {
          range.rows += 1;
          range.e += error;
          range.ee += error * error;
        };
        if (aice >= 0.10 && aice <= 0.16) add_to(*to.ice_edge);
        if (aice < 0.05) add_to(*to.open_water);
      }
    if (!to.jacobian_error || count == 0) return;
    const auto values = static_cast<std::size_t>(out * in);
    T* x = tape.host_arena().array<T>(count * in).data();
    T* j = tape.host_arena().array<T>(count * out * in).data();
    for (std::int64_t r = 0; r < count; ++r)
      for (std::int64_t i = 0; i < in; ++i) x[r * in + i] = static_cast<T>(data_.x.row<float>(row_of(r))[i]);
    if (guess == nullptr) {
      const auto jacobian_of = [&](const Emulator& e, T* result) {
        EmulatorOperators<T>(e).template jacobian<T>(count, {x, in, 1}, {}, JacobianUnits::normalised, result);
      };
      jacobian_of(emulator_, j);
      std::vector<T> other(others_.empty() ? 0 : static_cast<std::size_t>(count) * values);
      for (const Emulator& e : others_) {
        jacobian_of(e, other.data());
        for (std::size_t i = 0; i < other.size(); ++i) j[i] += other[i];
      }
      for (std::size_t i = 0; i < other.size(); ++i) j[i] /= static_cast<T>(members());  // the Jacobian of the mean
    } else {
      for (std::size_t i = 0; i < static_cast<std::size_t>(count) * values; ++i)
        j[i] = static_cast<T>(guess->weights[i % values]);
    }
    for (std::int64_t r = 0; r < count; ++r) {
      const float* truth = data_.jacobian.row<float>(row_of(r));
      double error = 0, size = 0;
      for (std::int64_t o = 0; o < out; ++o)
        for (std::int64_t i = 0; i < in; ++i) {
          const double exact = static_cast<double>(truth[o * in + i]) * m.input_std[i] / m.output_std[o];
          const double difference = static_cast<double>(j[(r * out + o) * in + i]) - exact;
          error += difference * difference;
          size += exact * exact;
        }
      if (size > 0) to.jacobian_error[bin_of(std::sqrt(error / size))] += 1;
      to.rows[1] += options_.loss.jacobian * error / static_cast<double>(values);
    }
  });
}

std::vector<Metric> EmulatorTask::metrics(Split, const std::vector<double>& sums) const {
  std::vector<double> copy = sums;
  return emulator_metrics::metrics({copy.data(), layout()}, data_.variables.output_names, data_.moments.output_std);
}

std::vector<MetricTable> EmulatorTask::tables(Split, const std::vector<double>& sums) const {
  if (others_.empty()) return {};
  std::vector<double> copy = sums;
  const emulator_metrics::Sums from(copy.data(), layout());
  MetricTable table{.name = "rank histogram", .rows = {"targets"}, .columns = {}, .values = {}};
  for (std::int64_t rank = 0; rank <= members(); ++rank) {
    table.columns.push_back(join(rank, " below"));
    table.values.push_back(from.ranks[rank]);
  }
  return {table};
}

std::vector<Metric> EmulatorTask::diagnostics() const {
  const std::int64_t count = std::min(options_.sensitivity_rows, size(Split::validation)), in = data_.n_in();
  const std::vector<std::int64_t> rows = data_.rows_of(Split::validation, 0, count);
  data_.x.fetch(rows);
  std::vector<float> x(count * in);
  for (std::int64_t r = 0; r < count; ++r) std::copy_n(data_.x.row<float>(rows[r]), in, x.data() + r * in);
  const SensitivityMetrics s = sensitivity_metrics(emulator_, count, x.data());
  std::vector<Metric> out = {
      {"jacobian.frobenius_norm", s.frobenius_norm}, {"jacobian.mean_abs_gradient", s.mean_abs_gradient},
      {"jacobian.spectral_norm", s.spectral_norm},   {"jacobian.stability", s.stability},
      {"jacobian.max_gradient", s.max_gradient},     {"jacobian.gradient_std", s.gradient_std}};
  for (std::size_t i = 0; i < s.feature_sensitivity.size(); ++i)
    out.push_back({"jacobian.feature." + data_.variables.input_names[i], s.feature_sensitivity[i]});
  out.push_back({"jacobian.most_sensitive_feature", static_cast<double>(s.most_sensitive_feature)});
  out.push_back({"jacobian.max_sensitivity", s.max_sensitivity});
  return out;
}

EmulatorMetadata EmulatorTask::metadata() const {
  EmulatorMetadata metadata;
  metadata.variables = data_.variables;
  metadata.mask.mode = data_.mask_mode;
  const EmulatorArch& arch = emulator_.arch();
  metadata.meta = {{"model_class", "lockstep.emulator"},
                   {"hidden_layers", std::to_string(arch.layers)},
                   {"hidden_size", std::to_string(arch.hidden)},
                   {"input_variables", listed(data_.variables.input_cf, ",")},
                   {"output_variables", listed(data_.variables.output_cf, ",")},
                   {"input_short_names", listed(data_.variables.input_names, ",")},
                   {"output_short_names", listed(data_.variables.output_names, ",")},
                   {"loss", name(options_.loss.kind)},
                   {"training_data", data_.path.filename().string()}};
  return metadata;
}

std::string EmulatorTask::adapt_from(const H5File& checkpoint) {
  const EmulatorDescription its = read_emulator_metadata(checkpoint);
  const std::string there = columns_text(its.metadata.variables), here = columns_text(data_.variables);
  if (there != here) return join("its columns are ", there, ", those of this run ", here);
  require_same_units(its.metadata.variables, data_.variables, join("data set '", data_.path.string(), "'"));
  const Moments &old = its.moments, &now = data_.moments;
  if (old == now) return "";
  if (its.arch.conv_channels > 0)
    return "it normalises columns otherwise than this data set, which a convolution cannot make up for";
  const EmulatorArch& arch = emulator_.arch();
  const auto change = [](const Param& param, const auto& value) {
    const HostView host(param.value, HostView::Access::write);
    visit_float(host->dtype(), [&]<class T>() {
      for (std::int64_t i = 0; i < host->size(); ++i)
        host->data<T>()[i] = static_cast<T>(value(i, static_cast<double>(host->data<T>()[i])));
    });
  };
  // z_old = (z s + m - m_old) / s_old: the bias takes the shift, the weight the scale.
  std::vector<double> shift(arch.hidden);
  change(emulator_.weight(0), [&](std::int64_t at, double w) {
    const std::int64_t i = at % arch.n_in;
    shift[at / arch.n_in] += w * (now.input_mean[i] - old.input_mean[i]) / old.input_std[i];
    return w * now.input_std[i] / old.input_std[i];
  });
  change(emulator_.bias(0), [&](std::int64_t row, double b) { return b + shift[row]; });
  // y = (y_old s_old + m_old - m) / s
  change(emulator_.weight(arch.layers), [&](std::int64_t at, double w) {
    return w * old.output_std[at / arch.hidden] / now.output_std[at / arch.hidden];
  });
  change(emulator_.bias(arch.layers), [&](std::int64_t o, double b) {
    return (b * old.output_std[o] + old.output_mean[o] - now.output_mean[o]) / now.output_std[o];
  });
  return "";
}

void EmulatorTask::save(H5File& file) const {
  save_emulator_metadata(file, emulator_.arch(), emulator_.moments(), metadata());
}

}  // namespace lockstep
