#pragma once
#include <algorithm>
#include <cassert>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <new>
#include <span>
#include <type_traits>

#include "lockstep/nn/params.hpp"
#include "lockstep/tensor/tensor.hpp"

namespace lockstep {

class Tape;

/// A value on a tape: a cheap handle, valid until the tape's arena is reset.
class Var {
 public:
  Var() = default;
  const Tensor& value() const { return node_->value; }
  const Shape& shape() const { return node_->value.shape(); }
  std::int64_t rows() const { return node_->value.rows(); }
  std::int64_t columns() const { return node_->value.columns(); }
  /// Whether a gradient is wanted for it at all.
  bool wants_grad() const { return node_->wants_grad; }
  /// What the backward pass has found so far. Only meaningful once some user has written it.
  const Tensor& grad() const { return node_->grad; }
  explicit operator bool() const { return node_ != nullptr; }

 private:
  friend class Tape;
  struct Node {
    Tensor value;
    Tensor grad;
    bool wants_grad = false;
    bool grad_written = false;
  };
  explicit Var(Node* node) : node_(node) {}
  Node* node_ = nullptr;
};

/// Remembers the order of forward operations and replays their hand-written backwards in reverse.
///
/// Nothing is derived symbolically and no graph is searched: the record order is the order. Values and gradients lie in
/// the arena, the records themselves in its host() part, so recording allocates nothing and costs nanoseconds per operation. One tape
/// belongs to one thread. A result's gradient lasts until its record has run; its memory then serves the next gradients.
///
/// A recorded operation is three steps: make the output, compute it, record the backward with what it needs:
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
    inputs,   ///< gradients for variables only: Jacobians leave parameter gradients alone
    forward,  ///< nothing is recorded: evaluation, prediction, cycles without gradient
  };
  /// `gradients` may be null unless the mode is train.
  Tape(Stream& stream, Arena& arena, DType dtype, Mode mode, Gradients* gradients = nullptr);

  Stream& stream() const { return stream_; }
  Arena& arena() const { return arena_; }
  /// Memory that the host may touch and that operations can read, as long-lived as arena(): for indices and labels.
  Arena& host_arena() const { return arena_.host(); }
  /// What values and their gradients are stored as. Half of f32 (bf16, f16) on a GPU only: ParamStore::store_as().
  DType dtype() const { return dtype_; }
  /// What operations compute in, and what losses, statistics and gradients of parameters are stored as.
  DType real_dtype() const { return lockstep::real_dtype(dtype_); }
  Mode mode() const { return mode_; }
  /// A parameter as operations on this tape read it.
  const Tensor& value(const Param& p) const {
    const Tensor& value = dtype_ == p.value.dtype() ? p.value : p.stored;
    assert(value.dtype() == dtype_);
    return value;
  }

  /// An input that needs no gradient; the memory is the caller's.
  Var constant(const Tensor& value);
  /// An input whose gradient is wanted (Jacobians, gradient checks); the memory is the caller's.
  Var variable(const Tensor& value);
  /// The result of an operation, uninitialised, of the tape's dtype.
  Var output(Shape shape, bool wants_grad) { return output(shape, wants_grad, dtype_); }
  /// The same of another dtype: losses are of real_dtype().
  Var output(Shape shape, bool wants_grad, DType dtype);
  /// Whether an operation on these inputs must record a backward.
  bool wants_grad(std::initializer_list<Var> inputs, std::initializer_list<const Param*> params = {}) const;
  /// Memory that the backward reads again, and scratch; valid until the arena's reset.
  Tensor keep(Shape shape) { return allocate(arena_, dtype_, shape); }
  Tensor keep(Shape shape, DType dtype) { return allocate(arena_, dtype, shape); }
  /// Values of the host, copied to where operations read them as long as arena() lasts.
  template <class T>
  std::span<const T> keep(std::span<const T> values) const {
    auto* copy = static_cast<T*>(host_arena().allocate(values.size_bytes()));
    std::copy(values.begin(), values.end(), copy);
    return {copy, values.size()};
  }

  /// What the backward of an operation is asked for at a time: all of it, or, after parameters_last(), what goes to its
  /// inputs, and later what goes to its parameters.
  enum class Part : std::uint8_t { all, inputs, parameters };

  /// Records the backward of an operation. It is run only if `y` has received a gradient. The closure is copied into
  /// the arena. One that takes a Part can be asked for its two halves apart, inputs first.
  template <class Backward>
  void record(const char* op, Var y, std::initializer_list<const Param*> params, const Backward& backward) {
    record(op, y, std::span(params.begin(), params.size()), backward);
  }
  template <class Backward>
  void record(const char* op, Var y, std::span<const Param* const> params, const Backward& backward) {
    static_assert(std::is_trivially_destructible_v<Backward>, "a record holds handles and views only");
    constexpr bool kInParts = std::is_invocable_v<const Backward&, Part>;
    if (!y.wants_grad()) return;
    void* memory = host_arena().allocate(sizeof(Backward));
    new (memory) Backward(backward);
    const auto run = [](const void* closure, [[maybe_unused]] Part part) {
      if constexpr (kInParts)
        (*static_cast<const Backward*>(closure))(part);
      else
        (*static_cast<const Backward*>(closure))();
    };
    push(op, y, params, memory, run, kInParts);
  }

  /// Where the gradient of v goes: empty when nobody wants it, stored on the first call, added to on later ones.
  Target grad_of(Var v);
  /// Where a parameter's gradient goes: always added to; empty when frozen or the mode is not train.
  Target grad_of(const Param& p);
  /// Where to note the rows of a row-sparse parameter that are added to; null when it is dense or grad_of(p) is empty.
  TouchedRows* touched_rows(const Param& p);

  /// From now on backward() follows the gradients down to the inputs first; what records can leave for later, the products
  /// for their weights, comes after that, in the same order and with the same bits. For models whose embeddings are most of
  /// the gradient: these are ready sooner, and travel while the products are computed. Costs the memory of the gradients
  /// that wait.
  void parameters_last() { parameters_last_ = true; }

  /// Seeds dy = scale for the scalar (or for each element of) `y`, and runs the records in reverse.
  void backward(Var y, double scale = 1);
  /// Seeds dy with the given values.
  void backward(Var y, const Tensor& seed);

  /// Called in backward as soon as no record still to run adds to this parameter's gradient: its bucket may be reduced.
  void on_param_ready(std::function<void(const Param&)> ready) { ready_ = std::move(ready); }

 private:
  struct Record;
  struct Spare;
  void seed(const Target& dy, const Tensor& values);
  Tensor gradient_of(const Tensor& value);
  void release(Var::Node& node);
  void push(const char* op, Var y, std::span<const Param* const> params, const void* closure,
            void (*run)(const void*, Part), bool in_parts);
  void replay();
  void run(const Record& record, Part part);
  void count_down(const Record& record);

  Stream& stream_;
  Arena& arena_;
  DType dtype_;
  Mode mode_;
  Gradients* gradients_;
  bool parameters_last_ = false;
  Record* last_ = nullptr;
  Spare* spare_ = nullptr;        ///< memory of gradients that have been passed on, the latest first
  Spare* empty_ = nullptr;        ///< list entries without memory
  std::int32_t* uses_ = nullptr;  ///< records that still add to each parameter, by Param::index
  std::function<void(const Param&)> ready_;
};

}  // namespace lockstep
