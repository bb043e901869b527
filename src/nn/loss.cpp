#include "lockstep/nn/loss.hpp"

#include "lockstep/ops/cross_entropy.hpp"
#include "lockstep/ops/elementwise.hpp"

namespace lockstep {

namespace {
void set_scalar(const Tensor& t, double value) {
  visit_float(t.dtype(), [&]<class T>() { *t.data<T>() = static_cast<T>(value); });
}
double scalar(const Tensor& t) {
  return visit_float(t.dtype(), [&]<class T>() { return static_cast<double>(*t.data<T>()); });
}

/// sum(dy) gives the sum and stores its gradient; the result on the tape is scale times it.
template <class Sum>
Var summed(Tape& t, const char* op, Var y, double scale, const Sum& sum) {
  Var loss = t.output({}, t.wants_grad({y}));
  const Tensor gradient = loss.wants_grad() ? t.keep(y.shape()) : Tensor{};
  set_scalar(loss.value(), scale * sum(gradient));
  t.record(op, loss, {}, [=, &t] { ops::scale(t.stream(), t.grad_of(y), gradient, scale * scalar(loss.grad())); });
  return loss;
}
}  // namespace

Var regression_loss(Tape& t, Var y, const Tensor& target, Regression loss, double scale) {
  return summed(t, "regression_loss", y, scale,
                [&](const Tensor& dy) { return ops::regression_loss(t.stream(), dy, y.value(), target, loss); });
}

Var smoothness_loss(Tape& t, Var y, std::span<const double> mean, std::span<const double> std, int order,
                    double scale) {
  return summed(t, "smoothness_loss", y, scale,
                [&](const Tensor& dy) { return ops::smoothness_loss(t.stream(), dy, y.value(), mean, std, order); });
}

Var cross_entropy(Tape& t, Var logits, const Tensor& labels, double smoothing) {
  return summed(t, "cross_entropy", logits, 1, [&](const Tensor& dy) {
    return ops::cross_entropy(t.stream(), dy, logits.value(), labels, smoothing);
  });
}

Var add(Tape& t, Var a, Var b) {
  Var y = t.output(a.shape(), t.wants_grad({a, b}));
  ops::add(t.stream(), y.value(), a.value(), b.value());
  t.record("add", y, {}, [=, &t] {
    ops::scale(t.stream(), t.grad_of(a), y.grad(), 1);
    ops::scale(t.stream(), t.grad_of(b), y.grad(), 1);
  });
  return y;
}

}  // namespace lockstep
