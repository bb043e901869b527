#include "lockstep/ops/attention.hpp"

#include <omp.h>

#include "attention_kernels.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/profile.hpp"
#include "lockstep/ops/rope.hpp"
#include "ops/common/on_gpu.hpp"

namespace lockstep::ops {

namespace {

/// Below this, starting a parallel region costs more than it saves.
constexpr double kParallelFlops = 4e6;

struct Extents {
  std::int64_t batch, time, heads, width;
  std::int64_t columns() const { return heads * width; }
};

bool is(const Tensor& t, std::int64_t rows, std::int64_t columns) { return t.rows() == rows && t.columns() == columns; }

Extents extents_of(const char* what, const Tensor& y, const Tensor& lse, const AttentionInput& x,
                   const AttentionOptions& options) {
  require(y.shape().rank() == 3, what, ": y must be (B, T, A), not ", y.shape());
  const std::int64_t batch = y.shape()[0], time = y.shape()[1], columns = y.shape()[2];
  require(options.heads >= 1 && columns % options.heads == 0, what, ": ", options.heads, " heads do not divide the ",
          columns, " columns of y");
  if (x.packed()) {
    require(is(x.q, batch * time, 3 * columns), what, ": y is ", y.shape(), ", so q, k, v side by side must be (",
            batch, ", ", time, ", ", 3 * columns, "), not ", x.q.shape());
  } else {
    for (const Tensor* t : {&x.q, &x.k, &x.v})
      require(is(*t, batch * time, columns), what, ": y is ", y.shape(), ", so q, k and v must be too, not ",
              t->shape());
  }
  require(!lse || lse.size() == batch * options.heads * time, what, ": y is ", y.shape(), ", so lse must be (", batch,
          ", ", options.heads, ", ", time, "), not ", lse.shape());
  require(!options.dropout || static_cast<std::int64_t>(options.samples.size()) == batch, what, ": dropout of ", batch,
          " sequences needs as many sample numbers, not ", options.samples.size());
  require(!options.cos || (x.packed() && columns / options.heads == 2 * options.cos.columns()), what,
          ": a rotation needs q, k and v in one array, and a table with half the ", columns / options.heads,
          " columns of a head, not ", options.cos.shape());
  return {batch, time, options.heads, columns / options.heads};
}

/// The arguments of one head.
template <class T>
cpu::AttentionHead<T> head_of(std::int64_t b, std::int64_t h, const Extents& e, const Tensor& y, const Tensor& lse,
                              const AttentionInput& x, const AttentionOptions& options) {
  const std::int64_t columns = e.columns(), stride = x.packed() ? 3 * columns : columns;
  const auto of_head = [&](const Tensor& t) { return t.data<T>() + b * e.time * stride + h * e.width; };
  cpu::AttentionHead<T> head;
  head.time = e.time;
  head.width = e.width;
  head.scale = static_cast<T>(options.scale);
  head.stride = stride;
  head.q = of_head(x.q);
  head.k = x.packed() ? head.q + columns : of_head(x.k);
  head.v = x.packed() ? head.q + 2 * columns : of_head(x.v);
  head.y = y.data<T>() + b * e.time * columns + h * e.width;
  head.y_stride = columns;
  if (lse) head.lse = lse.data<T>() + (b * e.heads + h) * e.time;
  if (options.dropout) {
    const WeightDraws draws(e.time);
    head.drop = true;
    head.key = cpu::PhiloxKey(options.dropout.draws(options.samples[static_cast<std::size_t>(b)]));
    head.rate = cpu::DropRate(options.dropout.rate);
    head.group_rows = draws.group_rows;
    head.row_groups = draws.row_groups;
    head.first_group = static_cast<std::uint64_t>(h) * draws.head_groups;
  }
  return head;
}

/// The arguments for a GPU, which computes all heads in one launch.
template <class T>
cuda::Attention<T> all_heads(const Extents& e, const Tensor& y, const Tensor& lse, const AttentionInput& x,
                             const AttentionOptions& options) {
  require(e.width <= cuda::kMostHeadColumns, "attention: heads of ", e.width, " columns: a GPU takes at most ",
          cuda::kMostHeadColumns);
  const T* q = x.q.data<T>();
  const bool packed = x.packed();
  cuda::Attention<T> a{.batch = e.batch,
                       .time = e.time,
                       .heads = e.heads,
                       .width = e.width,
                       .scale = static_cast<real_t<T>>(options.scale),
                       .q = q,
                       .k = packed ? q + e.columns() : x.k.data<T>(),
                       .v = packed ? q + 2 * e.columns() : x.v.data<T>(),
                       .stride = packed ? 3 * e.columns() : e.columns(),
                       .y = y.data<T>(),
                       .lse = lse ? lse.data<real_t<T>>() : nullptr};
  a.dropout = options.dropout;
  a.samples = options.samples.data();
  a.draws = WeightDraws(e.time);
  if (options.cos) {
    a.cos = options.cos.data<real_t<T>>();
    a.sin = options.sin.data<real_t<T>>();
  }
  return a;
}

/// Rotates queries and keys, or their gradients, side by side in one array.
void turn(Stream& stream, const Tensor& qk, const AttentionOptions& options, Rotation rotation) {
  if (options.cos) rope(stream, qk, options.cos, options.sin, 2 * options.heads, rotation);
}

/// Calls f for every head of every sequence, in parallel if that pays.
template <class F>
void for_each_head(const Extents& e, double products, const F& f) {
  const std::int64_t all = e.batch * e.heads;
  const double flops = 2 * products * static_cast<double>(all * e.width) * static_cast<double>(e.time * e.time);
  if (e.time == 0 || e.width == 0) return;
  const bool serial = flops < kParallelFlops || omp_in_parallel();
  profile::add_flops(flops / (serial ? 1 : omp_get_max_threads()));
  if (serial) {
    for (std::int64_t i = 0; i < all; ++i) f(i / e.heads, i % e.heads);
    return;
  }
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t i = 0; i < all; ++i) f(i / e.heads, i % e.heads);
}

}  // namespace

void attention_forward(Stream& stream, const Tensor& y, const Tensor& lse, const AttentionInput& x,
                       const AttentionOptions& options) {
  const Extents e = extents_of("attention", y, lse, x, options);
  if (on_gpu(y, [&]<class T>() { cuda::attention_forward<T>(stream, all_heads<T>(e, y, lse, x, options)); })) return;
  turn(stream, x.q, options, Rotation::forward);
  visit_float(y.dtype(), [&]<class T>() {
    const auto kernel = cpu::active_attention_kernels<T>().forward;
    for_each_head(e, 2, [&](std::int64_t b, std::int64_t h) { kernel(head_of<T>(b, h, e, y, lse, x, options)); });
  });
}

void attention_backward(Stream& stream, const AttentionTarget& dx, const Tensor& dy, const Tensor& y, const Tensor& lse,
                        const AttentionInput& x, const AttentionOptions& options) {
  const Extents e = extents_of("attention backward", y, lse, x, options);
  require(dy.shape() == y.shape() && lse.shape().rank() > 0, "attention backward: y is ", y.shape(),
          ", so dy must be too, not ", dy.shape(), ", and lse must not be empty");
  const auto check = [&](const Target& target, const Tensor& value) {
    require(!target || target.tensor.size() == value.size(), "attention backward: an input is ", value.shape(),
            ", so its gradient must be too, not ", target.tensor.shape());
  };
  check(dx.q, x.q);
  require(!options.cos || (dx.q && !dx.q.accumulate),
          "attention backward: the gradient of rotated inputs must be stored");
  if (!x.packed()) {
    check(dx.k, x.k);
    check(dx.v, x.v);
  }
  const std::int64_t columns = e.columns();
  const Target &dk = x.packed() ? dx.q : dx.k, &dv = x.packed() ? dx.q : dx.v;
  const std::int64_t k_offset = x.packed() ? columns : 0;
  if (on_gpu(y, [&]<class T>() {
        cuda::Attention<T> a = all_heads<T>(e, y, lse, x, options);
        a.dy = dy.data<T>();
        if (dx.q) {
          a.dq = dx.q.tensor.data<T>();
          a.add_dq = dx.q.accumulate;
        }
        if (dk) {
          a.dk = dk.tensor.data<T>() + k_offset;
          a.add_dk = dk.accumulate;
        }
        if (dv) {
          a.dv = dv.tensor.data<T>() + 2 * k_offset;
          a.add_dv = dv.accumulate;
        }
        cuda::attention_backward<T>(stream, a);
      }))
    return;
  visit_float(y.dtype(), [&]<class T>() {
    const auto kernel = cpu::active_attention_kernels<T>().backward;
    for_each_head(e, 5, [&](std::int64_t b, std::int64_t h) {
      cpu::AttentionHead<T> head = head_of<T>(b, h, e, y, lse, x, options);
      head.dy = dy.data<T>() + b * e.time * columns + h * e.width;
      const auto place = [&](T*& to, bool& add, const Target& target, std::int64_t offset) {
        if (!target) return;
        to = target.tensor.data<T>() + b * e.time * head.stride + h * e.width + offset;
        add = target.accumulate;
      };
      place(head.dq, head.add_dq, dx.q, 0);
      place(head.dk, head.add_dk, dk, k_offset);
      place(head.dv, head.add_dv, dv, 2 * k_offset);
      kernel(head);
    });
  });
  turn(stream, dx.q.tensor, options, Rotation::inverse);
}

}  // namespace lockstep::ops
