#include "lockstep/nn/embedding.hpp"

#include "lockstep/base/profile.hpp"
#include "lockstep/ops/embedding.hpp"

namespace lockstep {

Var embedding(Tape& t, const Param& table, std::span<const std::int32_t> ids, double scale, std::int64_t padding) {
  const profile::Span span("embedding");
  Var y = t.output({static_cast<std::int64_t>(ids.size()), table.shape.columns()}, t.wants_grad({}, {&table}));
  ops::embedding_forward(t.stream(), y.value(), t.value(table), ids, scale);
  t.record("embedding", y, {&table}, [=, &t, &table] {
    ops::embedding_backward(t.stream(), t.grad_of(table).tensor, y.grad(), ids, scale, padding);
    if (TouchedRows* touched = t.touched_rows(table)) {
      for (const std::int32_t id : ids)
        if (id != padding) touched->touch(id);
    }
  });
  return y;
}

}  // namespace lockstep
