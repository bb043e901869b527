#include "lockstep/nn/loss.hpp"

#include <algorithm>

#include "lockstep/base/profile.hpp"
#include "lockstep/ops/cross_entropy.hpp"
#include "lockstep/ops/elementwise.hpp"
#include "lockstep/ops/sampled_cross_entropy.hpp"

namespace lockstep {

namespace {
/// Records scale times a loss; sum(loss, dy) computes the loss and its gradient.
template <class Sum>
Var summed(Tape& t, const char* op, Var y, double scale, const Sum& sum) {
  const profile::Span span(op);
  Var loss = t.output({}, t.wants_grad({y}), t.real_dtype());
  const Tensor gradient = loss.wants_grad() ? t.keep(y.shape(), t.real_dtype()) : Tensor{};
  sum(loss.value(), gradient);
  if (scale != 1) ops::scale(t.stream(), {loss.value()}, loss.value(), scale);
  t.record(op, loss, {}, [=, &t] { ops::scale_by(t.stream(), t.grad_of(y), gradient, loss.grad(), scale); });
  return loss;
}
}  // namespace

Var regression_loss(Tape& t, Var y, const Tensor& target, Regression kind, double scale) {
  return summed(t, "regression_loss", y, scale, [&](const Tensor& loss, const Tensor& dy) {
    ops::regression_loss(t.stream(), loss, dy, y.value(), target, kind);
  });
}

Var smoothness_loss(Tape& t, Var y, std::span<const double> mean, std::span<const double> std, int order,
                    double scale) {
  const auto kept = [&](std::span<const double> values) {
    auto* to = static_cast<double*>(t.host_arena().allocate(values.size_bytes()));
    std::ranges::copy(values, to);
    return std::span<const double>(to, values.size());
  };
  return summed(t, "smoothness_loss", y, scale, [&](const Tensor& loss, const Tensor& dy) {
    ops::smoothness_loss(t.stream(), loss, dy, y.value(), kept(mean), kept(std), order);
  });
}

Var cross_entropy(Tape& t, Var logits, const Tensor& labels, double smoothing) {
  return summed(t, "cross_entropy", logits, 1, [&](const Tensor& loss, const Tensor& dy) {
    ops::cross_entropy(t.stream(), loss, dy, logits.value(), labels, smoothing);
  });
}

Var sampled_cross_entropy(Tape& t, Var f, const Param& table, std::span<const std::int32_t> pos,
                          std::span<const std::int32_t> neg) {
  require(f.rows() == static_cast<std::int64_t>(pos.size()) && pos.size() == neg.size() &&
              table.shape.columns() == f.columns(),
          "sampled_cross_entropy: f is ", f.shape(), ", ", table.name, " ", table.shape, ", with ", pos.size(), " and ",
          neg.size(), " items: columns and numbers of items must match");
  const profile::Span span("sampled_cross_entropy");
  Var loss = t.output({}, t.wants_grad({f}, {&table}), t.real_dtype());
  const Tensor slopes = t.keep({2, f.rows()}, t.real_dtype());
  ops::sampled_cross_entropy_forward(t.stream(), loss.value(), slopes, f.value(), t.value(table), pos, neg);
  t.record("sampled_cross_entropy", loss, {&table}, [=, &t, &table] {
    ops::sampled_cross_entropy_backward(t.stream(), t.grad_of(f), t.grad_of(table).tensor, loss.grad(), slopes,
                                        f.value(), t.value(table), pos, neg);
    if (TouchedRows* touched = t.touched_rows(table)) {
      for (std::size_t m = 0; m < pos.size(); ++m)
        if (pos[m] != 0) touched->touch(pos[m]), touched->touch(neg[m]);
    }
  });
  return loss;
}

Var add(Tape& t, Var a, Var b) {
  const profile::Span span("add");
  Var y = t.output(a.shape(), t.wants_grad({a, b}), a.value().dtype());
  ops::add(t.stream(), y.value(), a.value(), b.value());
  t.record("add", y, {}, [=, &t] {
    ops::scale(t.stream(), t.grad_of(a), y.grad(), 1);
    ops::scale(t.stream(), t.grad_of(b), y.grad(), 1);
  });
  return y;
}

}  // namespace lockstep
