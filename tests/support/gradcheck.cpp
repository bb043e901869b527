#include "support/gradcheck.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/nn/loss.hpp"
#include "lockstep/ops/isa.hpp"
#include "support/devices.hpp"
#include "support/tolerance.hpp"

namespace lockstep::test {

namespace {
void draw(const Tensor& t, std::uint64_t seed, Site site) {
  const Philox philox(seed, 0, site);
  std::uint64_t i = 0;
  for (double& value : t.span<double>()) value = philox.normal(i++);
}

using Function = std::function<Var(Tape&, const std::vector<Var>&)>;

/// The same operation twice on one tape: the second result's backward stores, the first one's adds.
Var twice(const Function& f, Tape& tape, const std::vector<OwnedTensor>& values, std::vector<Var>& vars) {
  vars.clear();
  for (const OwnedTensor& value : values) vars.push_back(tape.variable(value));
  return add(tape, f(tape, vars), f(tape, vars));
}

/// Rounds the values to those of another dtype.
void round_to(DType dtype, const Tensor& t) {
  const OwnedTensor rounded = converted(converted(t, dtype), t.dtype());
  const Stream stream;
  copy(stream, t, rounded);
}

/// The result, the gradients of the inputs and then of all parameters, on the CPU in f64; empty where there is none.
/// Computed in the storage of the parameters, with weights of the result rounded to `numbers`.
std::vector<OwnedTensor> results_on(Device device, const Function& f, const std::vector<OwnedTensor>& inputs,
                                    const ParamStore& params, std::uint64_t seed, DType numbers = DType::f64) {
  const DType dtype = params.storage();
  Stream stream(device);
  Arena arena(device);
  std::vector<OwnedTensor> values;
  for (const OwnedTensor& input : inputs) values.push_back(on_device(converted(input, dtype), device));
  Gradients gradients(params);
  std::vector<Var> vars;
  Tape tape(stream, arena, dtype, Tape::Mode::train, &gradients);
  const Var y = twice(f, tape, values, vars);
  const OwnedTensor weights(DType::f64, y.shape());
  draw(weights, seed, "gradcheck.weights");
  round_to(numbers, weights);
  const OwnedTensor seeds = on_device(converted(weights, y.value().dtype()), device);
  tape.backward(y, seeds);
  std::vector<OwnedTensor> results;
  const auto read = [](const Tensor& t) { return t ? converted(on_cpu(t), DType::f64) : OwnedTensor(); };
  results.push_back(read(y.value()));
  for (const Var& v : vars) results.push_back(read(v.grad()));
  for (const Param& p : params.all()) results.push_back(converted(unpacked(gradients, p), DType::f64));
  return results;
}

/// The largest difference between two runs, relative to the largest element (at least 1); infinite if a value is not
/// finite.
double difference(const std::vector<OwnedTensor>& a, const std::vector<OwnedTensor>& b) {
  double largest = 1, worst = 0;
  for (std::size_t k = 0; k < a.size(); ++k) {
    require(static_cast<bool>(a[k].view()) == static_cast<bool>(b[k].view()),
            "gradcheck: a gradient on one device only");
    if (!a[k].view()) continue;
    for (std::int64_t i = 0; i < a[k]->size(); ++i) {
      const double here = a[k]->data<double>()[i], there = b[k]->data<double>()[i];
      if (!std::isfinite(here) || !std::isfinite(there)) return std::numeric_limits<double>::infinity();
      largest = std::max(largest, std::abs(here));
      worst = std::max(worst, std::abs(here - there));
    }
  }
  return worst / largest;
}

/// The same, relative to each result's own largest element; b may be in bf16 or f16.
double difference_each(const std::vector<OwnedTensor>& a, const std::vector<OwnedTensor>& b) {
  double worst = 0;
  for (std::size_t k = 0; k < a.size(); ++k) {
    const auto one = [&](const std::vector<OwnedTensor>& all) {
      std::vector<OwnedTensor> single;
      if (all[k].view()) single.push_back(converted(all[k], DType::f64));
      return single;
    };
    require(one(a).size() == one(b).size(), "gradcheck: a gradient on one device only");
    worst = std::max(worst, difference(one(a), one(b)));
  }
  return worst;
}

/// The largest difference of bf16 or f16 from f64 with the same numbers that exceeds its tolerance; 0 if none does.
double outside_of(const Halves& halves, Device gpu, const Function& f, const std::vector<OwnedTensor>& values,
                  ParamStore& params, std::uint64_t seed) {
  double worst = 0;
  // f16 first: rounding to it keeps more digits.
  for (const auto& [dtype, tolerance] : {std::pair{DType::f16, halves.f16}, {DType::bf16, halves.bf16}}) {
    if (tolerance == 0) continue;
    for (const OwnedTensor& value : values) round_to(dtype, value);
    for (const Param& p : params.all()) round_to(dtype, p.value);
    const std::vector<OwnedTensor> exact = results_on({}, f, values, params, seed, dtype);
    params.move_to(gpu);
    params.store_as(dtype);
    const std::vector<OwnedTensor> rounded = results_on(gpu, f, values, params, seed, dtype);
    params.store_as(DType::f64);
    params.move_to({});
    const double found = difference_each(exact, rounded);
    if (!(found <= tolerance)) worst = std::max(worst, found);
  }
  return worst;
}
}  // namespace

double gradcheck(const Function& f, const std::vector<Shape>& inputs, ParamStore* params, std::uint64_t seed,
                 Where where, const Halves& halves) {
  constexpr double kWorst = std::numeric_limits<double>::infinity();
  std::vector<OwnedTensor> values;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    values.emplace_back(DType::f64, inputs[i]);
    draw(values.back(), seed, Site(join("gradcheck.input.", i)));
  }
  ParamStore none(DType::f64);
  if (!params) {
    none.allocate(0);
    params = &none;
  }
  for (Param& p : params->all()) draw(p.value, seed, Site("gradcheck." + p.name));
  const std::vector<OwnedTensor> results = results_on({}, f, values, *params, seed);
  const OwnedTensor weights(DType::f64, results[0]->shape());
  draw(weights, seed, "gradcheck.weights");

  Stream stream;
  Arena scratch;
  const auto loss = [&] {
    scratch.reset();
    Tape plain(stream, scratch, DType::f64, Tape::Mode::forward);
    std::vector<Var> again;
    const Var out = twice(f, plain, values, again);
    double sum = 0;
    for (std::int64_t i = 0; i < out.value().size(); ++i)
      sum += weights->data<double>()[i] * out.value().data<double>()[i];
    return sum;
  };
  double largest = 1, worst = 0;
  const auto compare = [&](const Tensor& value, const Tensor& gradient) {
    for (std::int64_t i = 0; i < value.size(); ++i) {
      double& x = value.data<double>()[i];
      const double here = x, step = 1e-3 * std::max(1.0, std::abs(here));
      const auto at = [&](double distance) {
        x = here + distance * step;
        const double result = loss();
        x = here;
        return result;
      };
      const double numeric = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step);
      const double found = gradient ? gradient.data<double>()[i] : 0;
      if (!std::isfinite(numeric) || !std::isfinite(found)) worst = kWorst;
      largest = std::max(largest, std::abs(numeric));
      worst = std::max(worst, std::abs(numeric - found));
    }
  };
  auto gradient = results.begin() + 1;
  for (const OwnedTensor& value : values) compare(value, *gradient++);
  for (const Param& p : params->all()) {
    if (p.trainable) compare(p.value, *gradient);
    ++gradient;
  }
  worst /= largest;

  if (where == Where::every_device && gpu_count() > 0 && ops::active_isa() == ops::available_isas().back()) {
    const Device gpu{DeviceKind::cuda, 0};
    params->move_to(gpu);
    const std::vector<OwnedTensor> there = results_on(gpu, f, values, *params, seed);
    params->move_to({});
    worst = std::max(worst, difference(results, there));
    worst = std::max(worst, outside_of(halves, gpu, f, values, *params, seed));
  }
  return worst;
}

OwnedTensor unpacked(const Gradients& gradients, const Param& param) {
  const Tensor packed = gradients.of(param);
  OwnedTensor all = on_cpu(packed);
  const TouchedRows* rows = gradients.touched(param);
  if (rows == nullptr || !rows->packed()) return all;
  fill_zero(Stream(), all);
  for (const std::int64_t row : rows->rows()) copy(Stream(), all->slice(row, 1), packed.slice(rows->place(row), 1));
  return all;
}

}  // namespace lockstep::test
