#include "lockstep/nn/tape.hpp"

#include <utility>

#include "lockstep/base/profile.hpp"
#include "lockstep/ops/elementwise.hpp"

namespace lockstep {

/// A recorded operation.
struct Tape::Record {
  Record* previous;
  Record* later;  ///< the next record with deferred parameter gradients
  const char* op;
  Var y;
  const void* closure;
  void (*run)(const void*, BackwardScope);
  bool splits;
  const Param** params;
  std::int64_t param_count;
};

/// A list entry of reusable memory.
struct Tape::Spare {
  Spare* next;
  Tensor memory;
};

Tape::Tape(Stream& stream, Arena& arena, DType dtype, Mode mode, Gradients* gradients, Arena* host)
    : stream_(stream), arena_(arena), host_(host), dtype_(dtype), mode_(mode), gradients_(gradients) {
  require(mode != Mode::train || gradients != nullptr, "creating a tape: mode train needs gradients");
}

Var Tape::constant(const Tensor& value) {
  auto* node = new (host_arena().allocate(sizeof(Var::Node))) Var::Node;
  node->value = value;
  return Var(node);
}

Var Tape::variable(const Tensor& value) {
  Var v = constant(value);
  v.node_->wants_grad = mode_ != Mode::forward;
  return v;
}

Var Tape::output(Shape shape, bool wants_grad, DType dtype) {
  Var v = constant(keep(shape, dtype));
  v.node_->wants_grad = wants_grad;
  return v;
}

bool Tape::wants_grad(std::initializer_list<Var> inputs, std::initializer_list<const Param*> params) const {
  if (mode_ == Mode::forward) return false;
  for (const Var v : inputs)
    if (v && v.wants_grad()) return true;
  return mode_ == Mode::train &&
         std::any_of(params.begin(), params.end(), [](const Param* p) { return p && p->trainable; });
}

void Tape::push(const char* op, Var y, std::span<const Param* const> params, const void* closure,
                void (*run)(const void*, BackwardScope), bool splits) {
  auto* record =
      new (host_arena().allocate(sizeof(Record))) Record{last_, nullptr, op, y, closure, run, splits, nullptr, 0};
  last_ = record;
  if (mode_ != Mode::train || params.empty()) return;
  if (!uses_) {
    const std::size_t count = gradients_->params().all().size();
    uses_ = host_arena().array<std::int32_t>(count).data();
    std::fill_n(uses_, count, 0);
  }
  record->params = host_arena().array<const Param*>(params.size()).data();
  for (const Param* p : params) {
    if (!p || !p->trainable) continue;
    ++uses_[p->index];
    record->params[record->param_count++] = p;
  }
}

Target Tape::grad_of(Var v) {
  if (!v || !v.wants_grad()) return {};
  Var::Node& node = *v.node_;
  if (!node.grad) node.grad = gradient_of(node.value);
  const bool accumulate = node.grad_written;
  require(!node.epilogue || !node.epilogue->done,
          "adding to a gradient after a layer norm has completed it: the layer norm must be the first operation on its "
          "input");
  node.grad_written = true;
  return {accumulate ? own_grad(v) : node.grad, accumulate};
}

GradientEpilogue* Tape::offer_epilogue(Var y, const GradientEpilogue& epilogue) {
  if (!y.wants_grad()) return nullptr;
  return y.node_->epilogue = new (host_arena().allocate(sizeof epilogue)) GradientEpilogue(epilogue);
}

const Tensor& Tape::own_grad(Var y) {
  Var::Node& node = *y.node_;
  if (node.sharers != nullptr && *node.sharers > 1) {
    const Tensor own = gradient_of(node.value);
    ops::scale(stream_, {own}, node.grad, 1);
    --*node.sharers;
    node.grad = own;
  }
  node.sharers = nullptr;
  return node.grad;
}

/// Makes a gradient whose memory is shared the gradient of a node that has none. `sharers` counts the owners.
void Tape::share(Var::Node& node, const Tensor& grad, std::int32_t*& sharers) {
  if (sharers == nullptr) sharers = new (host_arena().allocate(sizeof(std::int32_t))) std::int32_t(1);
  ++*sharers;
  node.grad = grad;
  node.sharers = sharers;
  node.grad_written = true;
}

void Tape::pass_grad(std::initializer_list<Var> xs, Var y) {
  Var::Node& from = *y.node_;
  for (const Var& x : xs) {
    const auto times = std::ranges::count_if(xs, [&](const Var& other) { return other.node_ == x.node_; });
    if (x.wants_grad() && !x.node_->grad && times == 1)
      share(*x.node_, from.grad, from.sharers);
    else
      ops::scale(stream_, grad_of(x), from.grad, 1);
  }
}

Tensor Tape::gradient_of(const Tensor& value) {
  for (Spare** at = &spare_; *at; at = &(*at)->next) {
    Spare* found = *at;
    const Tensor& memory = found->memory;
    if (memory.size() != value.size() || memory.dtype() != value.dtype()) continue;
    *at = std::exchange(found->next, empty_);
    empty_ = found;
    return memory.reshaped(value.shape());
  }
  return allocate(arena_, value.dtype(), value.shape());
}

void Tape::release(Var::Node& node) {
  if (node.sharers != nullptr && --*node.sharers > 0) {
    node.grad = {};
    node.sharers = nullptr;
    return;
  }
  Spare* entry = empty_ ? std::exchange(empty_, empty_->next)
                        : new (host_arena().allocate(sizeof(Spare))) Spare{nullptr, Tensor()};
  *entry = {spare_, std::exchange(node.grad, Tensor())};
  spare_ = entry;
}

Target Tape::grad_of(const Param& p) {
  if (mode_ != Mode::train || !p.trainable) return {};
  return {gradients_->of(p), true};
}

void Tape::seed(Var y, const Tensor& values) {
  if (!y.wants_grad()) return;
  const bool same_device = values.device() == y.value().device();
  if (same_device && !y.node_->grad) {
    std::int32_t* sharers = nullptr;  // share() counts the caller as an owner, too, so that `values` is not overwritten
    return share(*y.node_, values, sharers);
  }
  const Target dy = grad_of(y);
  if (!dy.accumulate) return copy(stream_, dy.tensor, values);
  Tensor on_device = values;
  if (!same_device) {
    on_device = allocate(arena_, values.dtype(), values.shape());
    copy(stream_, on_device, values);
  }
  ops::scale(stream_, dy, on_device, 1);
}

void Tape::backward(Var y, double scale) {
  require(mode_ != Mode::forward, "backward on a tape that does not record: its mode is forward");
  const Tensor values = allocate(host_arena(), y.value().dtype(), y.shape());
  require(!is_half(values.dtype()), "backward from a result in ", values.dtype(), ": pass the values of the seed");
  visit_float(values.dtype(), [&]<class T>() { std::ranges::fill(values.span<T>(), static_cast<T>(scale)); });
  seed(y, values);
  replay();
}

void Tape::backward(Var y, const Tensor& seed_values) {
  require(mode_ != Mode::forward, "backward on a tape that does not record: its mode is forward");
  require(seed_values.shape() == y.shape() && seed_values.dtype() == y.value().dtype(), "backward: y is ", y.shape(),
          " of ", y.value().dtype(), ", the seed ", seed_values.shape(), " of ", seed_values.dtype());
  seed(y, seed_values);
  replay();
}

void Tape::run(const Record& record, BackwardScope scope) {
  const profile::Span span(record.op, profile::Kind::backward);
  try {
    record.run(record.closure, scope);
  } catch (const OutOfMemory&) {
    throw;  // its message needs no context
  } catch (const Error& e) {
    throw Error(e.fault(), join("backward of ", record.op, ": ", e.what()), e.where());
  }
}

void Tape::count_down(const Record& record) {
  for (std::int64_t i = 0; i < record.param_count; ++i) {
    const Param& p = *record.params[i];
    if (--uses_[p.index] == 0 && ready_) ready_(p);
  }
}

void Tape::replay() {
  Record* record = last_;
  last_ = nullptr;  // records run once
  // A nested backward uses memory that is released at its end (recompute.hpp), so it has its own lists.
  Spare* const spare = std::exchange(spare_, nullptr);
  Spare* const empty = std::exchange(empty_, nullptr);
  Record* waiting = nullptr;
  Record** end = &waiting;
  for (; record; record = record->previous) {
    const bool reached = record->y.node_->grad_written;
    if (reached && parameters_last_ && record->splits && record->param_count > 0) {
      run(*record, BackwardScope::inputs);
      *end = record;
      end = &record->later;
      continue;
    }
    if (reached) {
      run(*record, BackwardScope::all);
      release(*record->y.node_);
    }
    count_down(*record);
  }
  for (record = waiting; record; record = record->later) {
    run(*record, BackwardScope::parameters);
    count_down(*record);
  }
  spare_ = spare;
  empty_ = empty;
}

}  // namespace lockstep
