#pragma once
#include <algorithm>
#include <cassert>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <new>
#include <span>
#include <type_traits>

#include "lockstep/device/staged_copy.hpp"
#include "lockstep/nn/params.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep {

class Tape;

/// The first work of an operation's backward on the gradient dy of its result y. The operation that completes dy can do
/// it in the same pass: derivative *= dy (unless empty); then the sum of the rows of derivative (of dy if derivative is
/// empty) is added to the gradient of `sums` (unless null).
struct GradientEpilogue {
  Tensor derivative;
  const Param* sums = nullptr;
  bool done = false;
};

/// A handle of a value on a tape, valid until the tape's arena is reset. Cheap to copy.
class Var {
 public:
  Var() = default;
  const Tensor& value() const { return node_->value; }
  const Shape& shape() const { return node_->value.shape(); }
  std::int64_t rows() const { return node_->value.rows(); }
  std::int64_t columns() const { return node_->value.columns(); }
  /// Whether the value needs a gradient.
  bool wants_grad() const { return node_->wants_grad; }
  /// The gradient accumulated so far. Undefined before the first writer.
  const Tensor& grad() const { return node_->grad; }
  explicit operator bool() const { return node_ != nullptr; }
  /// Whether both are the same value.
  bool operator==(const Var& other) const { return node_ == other.node_; }

 private:
  friend class Tape;
  struct Node {
    Tensor value;
    Tensor grad;
    std::int32_t* sharers = nullptr;  ///< how many results share the memory of `grad`; null: not shared
    bool wants_grad = false;
    bool grad_written = false;
    GradientEpilogue* epilogue = nullptr;
  };
  explicit Var(Node* node) : node_(node) {}
  Node* node_ = nullptr;
};

/// The destination of the gradients of a table's rows, see Tape::grad_of_rows().
struct RowTarget {
  Tensor tensor;  ///< empty if the table needs no gradient
  std::span<const std::int32_t> places;
};

/// Records forward operations in order and runs their hand-written backwards in reverse order.
///
/// There is no symbolic differentiation and no graph search: the record order is the order. Values and gradients lie in
/// the arena, the records in host_arena(), so recording allocates nothing and costs nanoseconds per operation. A
/// tape belongs to one thread. The gradient of a result is valid until its record has run; later gradients then reuse
/// its memory.
///
/// A recorded operation has three steps: create the output, compute it, record the backward with the values that it
/// needs:
///
///   Var y = t.output(x.shape(), t.wants_grad({x}, {&p.gamma}));
///   ops::layernorm_forward(t.stream(), y.value(), ...);
///   t.record("layernorm", y, {&p.gamma, &p.beta}, [=, &t, &p] {
///     ops::layernorm_backward(t.stream(), t.grad_of(x), t.grad_of(p.gamma), ..., y.grad());
///   });
class Tape {
 public:
  enum class Mode : std::uint8_t {
    train,    ///< gradients for parameters and variables
    inputs,   ///< gradients for variables only: for Jacobians
    forward,  ///< no recording: evaluation, prediction, cycles without gradient
  };
  /// `gradients` may be null unless the mode is train.
  /// `host` replaces the host() arena of `arena` in host_arena() and for the records.
  Tape(Stream& stream, Arena& arena, DType dtype, Mode mode, Gradients* gradients = nullptr, Arena* host = nullptr);

  Stream& stream() const { return stream_; }
  Arena& arena() const { return arena_; }
  /// Memory that the host may access and operations can read, with the lifetime of arena(): for indices and labels.
  Arena& host_arena() const { return host_ != nullptr ? *host_ : arena_.host(); }
  /// The dtype of values and their gradients. bf16 and f16 are supported on a GPU only, see ParamStore::store_as().
  DType dtype() const { return dtype_; }
  /// The dtype of computation, losses, statistics and parameter gradients.
  DType real_dtype() const { return lockstep::real_dtype(dtype_); }
  Mode mode() const { return mode_; }
  /// The value of a parameter in the dtype of this tape.
  const Tensor& value(const Param& p) const {
    const Tensor& value = dtype_ == p.value.dtype() ? p.value : p.stored;
    assert(value.dtype() == dtype_);
    return value;
  }

  /// The value of a table of which an operation reads these rows.
  const Tensor& value(const Param& table, std::initializer_list<std::span<const std::int32_t>> rows) const {
    for (const std::span<const std::int32_t> ids : rows)
      if (table.deferred != nullptr) table.deferred->apply(table, ids);
    return value(table);
  }

  /// An input without gradient. The memory belongs to the caller.
  Var constant(const Tensor& value);
  /// An input with gradient (Jacobians, gradient checks). The memory belongs to the caller.
  Var variable(const Tensor& value);
  /// The uninitialised result of an operation, in the tape's dtype.
  Var output(Shape shape, bool wants_grad) { return output(shape, wants_grad, dtype_); }
  /// The uninitialised result of an operation in another dtype; losses have real_dtype().
  Var output(Shape shape, bool wants_grad, DType dtype);
  /// Whether an operation on these inputs must record a backward.
  bool wants_grad(std::initializer_list<Var> inputs, std::initializer_list<const Param*> params = {}) const;
  /// Memory for values that the backward needs, and for scratch. Valid until the arena's reset.
  Tensor keep(Shape shape) { return allocate(arena_, dtype_, shape); }
  Tensor keep(Shape shape, DType dtype) { return allocate(arena_, dtype, shape); }
  /// Copies host values to memory that operations can read, with the lifetime of arena().
  template <class T>
  std::span<const T> keep(std::span<const T> values) const {
    const std::span<T> copy = host_arena().array<T>(values.size());
    std::ranges::copy(values, copy.begin());
    return copy;
  }

  /// The gradients that one call of a backward computes: all, or, with parameters_last(), first those of the inputs and
  /// later those of the parameters.
  enum class BackwardScope : std::uint8_t { all, inputs, parameters };

  /// Records the backward of an operation. The backward runs only if `y` has received a gradient. The arena holds a
  /// copy of the closure. With parameters_last(), a closure that takes a BackwardScope runs twice: first for the
  /// inputs.
  template <class Backward>
  void record(const char* op, Var y, std::initializer_list<const Param*> params, const Backward& backward) {
    record(op, y, std::span(params.begin(), params.size()), backward);
  }
  template <class Backward>
  void record(const char* op, Var y, std::span<const Param* const> params, const Backward& backward) {
    static_assert(std::is_trivially_destructible_v<Backward>, "a record holds handles and views only");
    constexpr bool kSplits = std::is_invocable_v<const Backward&, BackwardScope>;
    if (!y.wants_grad()) return;
    void* memory = host_arena().allocate(sizeof(Backward));
    new (memory) Backward(backward);
    const auto run = [](const void* closure, [[maybe_unused]] BackwardScope scope) {
      if constexpr (kSplits)
        (*static_cast<const Backward*>(closure))(scope);
      else
        (*static_cast<const Backward*>(closure))();
    };
    push(op, y, params, memory, run, kSplits);
  }

  /// The destination of the gradient of v: empty if v needs none, store on the first call, accumulate on later calls.
  Target grad_of(Var v);
  /// Adds the gradient of y to the gradient of each x, which has y's shape and dtype: the backward of a sum. Call it
  /// last in the backward of y: to save a copy, each x that has no gradient yet shares the memory of y's gradient,
  /// until one of the sharers is written to or all but one are released.
  void pass_grad(std::initializer_list<Var> xs, Var y);
  /// Offers an epilogue to the operation that completes the gradient of y: a layer norm that is the first operation on
  /// y, so that its backward is the last one.
  GradientEpilogue* offer_epilogue(Var y, const GradientEpilogue& epilogue);
  /// The epilogue offered by the operation that made x, or null. The operation that executes it sets `done`; the
  /// gradient of x is then complete.
  GradientEpilogue* epilogue_of(Var x) const { return x.node_->epilogue; }
  /// The gradient of y in memory that its backward may overwrite.
  const Tensor& own_grad(Var y);
  /// The destination of a parameter's gradient: always accumulate; empty if it is frozen or the mode is not train. Use
  /// grad_of_rows() for a parameter that may be row-sparse.
  Target grad_of(const Param& p);
  /// The destination of the gradients of table rows: the gradient of row ids[i] is added to row places[i] of the
  /// tensor, which has the table's shape. If the table is row-sparse and the host can read the ids, records each ids[i]
  /// with wanted(i) as a touched row; the other places are undefined. Later calls keep earlier places valid.
  template <class Wanted>
  RowTarget grad_of_rows(const Param& table, std::span<const std::int32_t> ids, const Wanted& wanted) {
    const Target all = grad_of(table);
    TouchedRows* touched = all ? gradients_->touched(table) : nullptr;
    if (touched == nullptr || in_gpu_memory(stream_.device(), ids.data())) return {all.tensor, ids};
    std::span<const std::int32_t> places = ids;
    std::int32_t* to = nullptr;
    if (touched->packed()) {
      to = host_arena().array<std::int32_t>(ids.size()).data();
      places = {to, ids.size()};
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::int32_t place = wanted(i) ? touched->touch(ids[i]) : -1;
      if (to != nullptr) to[i] = place;
    }
    return {all.tensor, places};
  }

  /// Makes backward() propagate gradients to the inputs first and compute the products for weights afterwards, in the
  /// same order and with the same bits. For models whose gradient consists mostly of embeddings: these are ready sooner
  /// and are reduced while the products run. Costs the memory of the gradients that the products need.
  void parameters_last() { parameters_last_ = true; }

  /// Seeds dy = scale for each element of `y` and runs the records in reverse. A tape runs its records once.
  /// errors   Error if the mode is forward, or for a result in bf16 or f16
  void backward(Var y, double scale = 1);
  /// Seeds dy with the given values, which must not change until backward() returns.
  /// errors   Error if the mode is forward, or if shape or dtype differ from those of y
  void backward(Var y, const Tensor& seed);

  /// Sets a callback for parameters whose gradient is complete: no remaining record adds to it, so its bucket may be
  /// reduced.
  void on_param_ready(std::function<void(const Param&)> ready) { ready_ = std::move(ready); }

 private:
  struct Record;
  struct Spare;
  void seed(Var y, const Tensor& values);
  void share(Var::Node& node, const Tensor& grad, std::int32_t*& sharers);
  Tensor gradient_of(const Tensor& value);
  void release(Var::Node& node);
  void push(const char* op, Var y, std::span<const Param* const> params, const void* closure,
            void (*run)(const void*, BackwardScope), bool splits);
  void replay();
  void run(const Record& record, BackwardScope scope);
  void count_down(const Record& record);

  Stream& stream_;
  Arena& arena_;
  Arena* host_;
  DType dtype_;
  Mode mode_;
  Gradients* gradients_;
  bool parameters_last_ = false;
  Record* last_ = nullptr;
  Spare* spare_ = nullptr;        ///< reusable memory of gradients, most recent first
  Spare* empty_ = nullptr;        ///< list entries without memory
  std::int32_t* uses_ = nullptr;  ///< remaining records that add to each parameter, by Param::index
  std::function<void(const Param&)> ready_;
};

}  // namespace lockstep
