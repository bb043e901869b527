#include "lockstep/nn/embedding.hpp"

#include "lockstep/base/profile.hpp"
#include "lockstep/ops/dropout.hpp"
#include "lockstep/ops/embedding.hpp"

namespace lockstep {

namespace {
void add_gradient(Tape& t, const TableRows& rows, const Tensor& dy) {
  const RowTarget to =
      t.grad_of_rows(*rows.table, rows.ids, [&](std::size_t m) { return rows.ids[m] != rows.padding; });
  if (to.tensor) ops::embedding_backward(t.stream(), to.tensor, dy, rows.ids, rows.scale, rows.padding, to.places);
}
}  // namespace

Var embedding(Tape& t, const Param& table, std::span<const std::int32_t> ids, double scale, std::int64_t padding) {
  const profile::Span span("embedding");
  Var y = t.output({std::ssize(ids), table.shape.columns()}, t.wants_grad({}, {&table}));
  ops::embedding_forward(t.stream(), y.value(), t.value(table, {ids}), ids, scale);
  t.record("embedding", y, {&table}, [=, &t, &table] { add_gradient(t, {&table, ids, scale, padding}, y.grad()); });
  return y;
}

Var embedding_sum(Tape& t, const TableRows& a, const TableRows& b, const ops::Dropout& dropout,
                  const ops::SampleRows& rows) {
  const profile::Span span("embedding");
  Var y = t.output({std::ssize(a.ids), a.table->shape.columns()}, t.wants_grad({}, {a.table, b.table}));
  const Tensor second = b.table != nullptr ? t.value(*b.table, {b.ids}) : Tensor{};
  const Tensor derivative = dropout && y.wants_grad() ? t.keep(y.shape()) : Tensor{};
  ops::embedding_sum(t.stream(), y.value(), {t.value(*a.table, {a.ids}), a.ids, a.scale}, {second, b.ids, b.scale},
                     dropout, rows, derivative);
  const GradientEpilogue* epilogue = dropout ? t.offer_epilogue(y, {derivative}) : nullptr;
  t.record("embedding", y, {a.table, b.table}, [=, &t] {
    const bool done = epilogue && epilogue->done;
    const Tensor& dy = done ? derivative : dropout ? t.own_grad(y) : y.grad();
    if (dropout && !done) ops::dropout(t.stream(), {dy}, dy, dropout, rows);
    add_gradient(t, a, dy);
    if (b.table != nullptr) add_gradient(t, b, dy);
  });
  return y;
}

Var embedding_pair(Tape& t, const Param& first, const Param& second, std::span<const std::int32_t> ids,
                   const ops::Dropout& dropout, const ops::SampleRows& rows) {
  require(second.adjoins && second.index == first.index + 1 && second.shape == first.shape && !first.row_sparse,
          "embedding of ", first.name, " beside ", second.name, ": must be dense tables of one shape without a gap");
  const profile::Span span("embedding_pair");
  const auto both = [&](const Tensor& table) {
    return Tensor{table.raw(), table.dtype(), {2, table.shape()[0], table.columns()}, table.device()};
  };
  Var y = t.output({std::ssize(ids), 2 * first.shape.columns()}, t.wants_grad({}, {&first}));
  ops::embedding_pair(t.stream(), y.value(), both(t.value(first)), ids, dropout, rows);
  t.record("embedding_pair", y, {&first, &second}, [=, &t, &first] {
    const Tensor& dy = dropout ? t.own_grad(y) : y.grad();
    if (dropout) ops::dropout(t.stream(), {dy}, dy, dropout, rows);
    ops::embedding_pair_backward(t.stream(), both(t.grad_of(first).tensor), dy, ids, rows);
  });
  return y;
}

Var dropout(Tape& t, Var x, const Dropout& dropout, const SampleRows& rows) {
  if (!dropout) return x;
  const profile::Span span("dropout");
  Var y = t.output(x.shape(), t.wants_grad({x}));
  ops::dropout(t.stream(), {y.value()}, x.value(), dropout, rows);
  t.record("dropout", y, {}, [=, &t] { ops::dropout(t.stream(), t.grad_of(x), y.grad(), dropout, rows); });
  return y;
}

}  // namespace lockstep
