#include "support/gradcheck.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/nn/loss.hpp"

namespace lockstep::test {

namespace {
void draw(const Tensor& t, std::uint64_t seed, Site site) {
  const Philox philox(seed, 0, site);
  std::uint64_t i = 0;
  for (double& value : t.span<double>()) value = philox.normal(i++);
}
}  // namespace

double gradcheck(const std::function<Var(Tape&, const std::vector<Var>&)>& f, const std::vector<Shape>& inputs,
                 ParamStore* params, std::uint64_t seed) {
  constexpr double kWorst = std::numeric_limits<double>::infinity();
  Stream stream;
  Arena arena;
  std::vector<OwnedTensor> values;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    values.emplace_back(DType::f64, inputs[i]);
    draw(values.back(), seed, Site(join("gradcheck.input.", i)));
  }
  ParamStore none(DType::f64);
  if (!params) none.allocate(0), params = &none;
  for (Param& p : params->all()) draw(p.value, seed, Site("gradcheck." + p.name));
  Gradients gradients(*params);

  // The same operation twice on one tape: the second result's backward stores, the first one's adds.
  const auto forward = [&](Tape& tape, std::vector<Var>& vars) {
    vars.clear();
    for (const OwnedTensor& value : values) vars.push_back(tape.variable(value));
    return add(tape, f(tape, vars), f(tape, vars));
  };
  std::vector<Var> vars;
  Tape tape(stream, arena, DType::f64, Tape::Mode::train, &gradients);
  const Var y = forward(tape, vars);
  const OwnedTensor weights(DType::f64, y.shape());
  draw(weights, seed, "gradcheck.weights");
  tape.backward(y, weights);

  Arena scratch;
  const auto loss = [&] {
    scratch.reset();
    Tape plain(stream, scratch, DType::f64, Tape::Mode::forward);
    std::vector<Var> again;
    const Var out = forward(plain, again);
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
  for (std::size_t i = 0; i < values.size(); ++i) compare(values[i], vars[i].grad());
  for (const Param& p : params->all())
    if (p.trainable) compare(p.value, gradients.of(p));
  return worst / largest;
}

}  // namespace lockstep::test
