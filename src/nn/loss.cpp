#include "lockstep/nn/loss.hpp"

#include "lockstep/base/profile.hpp"
#include "lockstep/nn/embedding.hpp"
#include "lockstep/ops/cross_entropy.hpp"
#include "lockstep/ops/elementwise.hpp"
#include "lockstep/ops/item_softmax.hpp"
#include "lockstep/ops/sampled_cross_entropy.hpp"
#include "lockstep/tensor/on_device.hpp"

namespace lockstep {

namespace {
/// Records a loss times `scale`; sum(loss, dy) computes the loss and its gradient by y.
Var summed(Tape& t, const char* op, Var y, double scale, const auto& sum) {
  const profile::Span span(op);
  Var loss = t.output({}, t.wants_grad({y}), t.real_dtype());
  const Tensor gradient = loss.wants_grad() ? t.keep(y.shape(), t.real_dtype()) : Tensor{};
  sum(loss.value(), gradient);
  if (scale != 1) ops::scale(t.stream(), {loss.value()}, loss.value(), scale);
  t.record(op, loss, {}, [=, &t] { ops::scale_by(t.stream(), t.grad_of(y), gradient, loss.grad(), scale); });
  return loss;
}
}  // namespace

Var regression_loss(Tape& t, Var y, const Tensor& target, Regression kind, double scale, const Tensor& weights) {
  return summed(t, "regression_loss", y, scale, [&](const Tensor& loss, const Tensor& dy) {
    ops::regression_loss(t.stream(), loss, dy, y.value(), target, kind, weights);
  });
}

Var smoothness_loss(Tape& t, Var y, std::span<const double> mean, std::span<const double> std, int order,
                    double scale) {
  return summed(t, "smoothness_loss", y, scale, [&](const Tensor& loss, const Tensor& dy) {
    ops::smoothness_loss(t.stream(), loss, dy, y.value(), t.keep(mean), t.keep(std), order);
  });
}

Var cross_entropy(Tape& t, Var logits, const Tensor& labels, double smoothing, const Tensor& weights) {
  return summed(t, "cross_entropy", logits, 1, [&](const Tensor& loss, const Tensor& dy) {
    ops::cross_entropy(t.stream(), loss, dy, logits.value(), labels, smoothing, weights);
  });
}

Var sampled_cross_entropy(Tape& t, Var f, const Param& table, std::span<const std::int32_t> pos,
                          std::span<const std::int32_t> neg, double beta) {
  const std::size_t each = pos.empty() ? 0 : neg.size() / pos.size();
  require(f.rows() == std::ssize(pos) && each * pos.size() == neg.size() && table.shape.columns() == f.columns(),
          "sampled_cross_entropy: f is ", f.shape(), ", ", table.name, " ", table.shape, ", with ", pos.size(), " and ",
          neg.size(), " items: columns and numbers of items must match");
  const profile::Span span("sampled_cross_entropy");
  Var loss = t.output({}, t.wants_grad({f}, {&table}), t.real_dtype());
  const Tensor slopes = t.keep({static_cast<std::int64_t>(1 + each), f.rows()}, t.real_dtype());
  ops::sampled_cross_entropy_forward(t.stream(), loss.value(), slopes, f.value(), t.value(table, {pos, neg}), pos, neg,
                                     beta);
  t.record("sampled_cross_entropy", loss, {&table}, [=, &t, &table] {
    const RowTarget to_pos = t.grad_of_rows(table, pos, [&](std::size_t m) { return pos[m] != 0; });
    const RowTarget to_neg = t.grad_of_rows(table, neg, [&](std::size_t i) { return pos[i / each] != 0; });
    ops::sampled_cross_entropy_backward(t.stream(), t.grad_of(f), to_pos.tensor, loss.grad(), slopes, f.value(),
                                        t.value(table), pos, neg, {to_pos.places, to_neg.places});
  });
  return loss;
}

namespace {
/// rows_grad() returns the destination of the gradient of the candidates' rows.
Var softmax_over(Tape& t, Var f, const Param& table, std::span<const std::int32_t> pos,
                 const ops::SoftmaxCandidates& candidates, const auto& rows_grad) {
  const profile::Span span("item_softmax");
  Var loss = t.output({}, t.wants_grad({f}, {&table}), t.real_dtype());
  const Tensor state = t.keep({3, f.rows()}, t.real_dtype());
  const Tensor scratch = t.keep({ops::softmax_scratch(f.value().device(), is_half(t.dtype()), f.rows(),
                                                      candidates.rows.rows(), f.columns(), candidates.parts)},
                                t.real_dtype());
  ops::item_softmax_forward(t.stream(), loss.value(), state, scratch, f.value(), t.value(table), candidates, pos);
  t.record("item_softmax", loss, {&table}, [=, &t, &table] {
    const RowTarget to = t.grad_of_rows(table, pos, [&](std::size_t m) { return pos[m] != 0; });
    ops::item_softmax_backward(t.stream(), t.grad_of(f), rows_grad(), to.tensor, loss.grad(), state, scratch, f.value(),
                               t.value(table), candidates, pos, to.places);
  });
  return loss;
}
}  // namespace

Var item_softmax(Tape& t, Var f, const Param& table, std::span<const std::int32_t> pos, std::int64_t parts) {
  require(!table.row_sparse, "item_softmax: ", table.name, " is row-sparse, but each of its rows gets a gradient");
  const std::int64_t items = table.shape[0] - 1;
  return softmax_over(t, f, table, pos, {.rows = t.value(table).slice(1, items), .ids = {}, .bias = {}, .parts = parts},
                      [=, &t, &table]() -> Target {
                        const Target all = t.grad_of(table);
                        return all ? Target{all.tensor.slice(1, items), true} : Target{};
                      });
}

Var sampled_softmax(Tape& t, Var f, const Param& table, std::span<const std::int32_t> pos,
                    std::span<const std::int32_t> ids, const Tensor& bias) {
  const Var rows = embedding(t, table, ids);
  Tensor device_ids = Tensor::of(ids.data(), bias.shape()), device_bias = bias;
  if (!bias.device().is_cuda()) {
    device_ids = on_device(t.stream(), t.arena(), device_ids);
    device_bias = on_device(t.stream(), t.arena(), bias);
  }
  return softmax_over(t, f, table, pos, {.rows = rows.value(), .ids = device_ids, .bias = device_bias},
                      [=, &t] { return t.grad_of(rows); });
}

Var add(Tape& t, Var a, Var b) {
  const profile::Span span("add");
  Var y = t.output(a.shape(), t.wants_grad({a, b}), a.value().dtype());
  ops::add(t.stream(), y.value(), a.value(), b.value());
  t.record("add", y, {}, [=, &t] { t.pass_grad({a, b}, y); });
  return y;
}

}  // namespace lockstep
