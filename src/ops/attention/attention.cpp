#include "lockstep/ops/attention.hpp"

#include <omp.h>

#include "lockstep/base/profile.hpp"
#include "lockstep/ops/rope.hpp"
#include "ops/attention/packed_attention_cuda.hpp"
#include "ops/common/on_gpu.hpp"

namespace lockstep::ops {

namespace {

/// Below this, starting a parallel region costs more than it saves.
constexpr double kParallelFlops = 4e6;

struct Extents {
  std::int64_t batch, time, heads, width;
  std::int64_t columns() const { return heads * width; }
};

Extents extents_of(const char* what, const Tensor& y, const Tensor& lse, const Tensor& qkv,
                   const AttentionOptions& options) {
  require(y.shape().rank() == 3, what, ": y must be (B, T, A), not ", y.shape());
  const std::int64_t batch = y.shape()[0], time = y.shape()[1], columns = y.shape()[2];
  require(options.heads >= 1 && columns % options.heads == 0, what, ": ", options.heads, " heads do not divide the ",
          columns, " columns of y");
  require(qkv.rows() == batch * time && qkv.columns() == 3 * columns, what, ": y is ", y.shape(),
          ", so q, k, v side by side must be (", batch, ", ", time, ", ", 3 * columns, "), not ", qkv.shape());
  require(!lse || lse.size() == batch * options.heads * time, what, ": y is ", y.shape(), ", so lse must be (", batch,
          ", ", options.heads, ", ", time, "), not ", lse.shape());
  require(!options.dropout || std::ssize(options.samples) == batch, what, ": dropout of ", batch,
          " sequences needs as many sample numbers, not ", options.samples.size());
  require(!options.cos || columns / options.heads == 2 * options.cos.columns(), what,
          ": a rotation needs a table with half the ", columns / options.heads, " columns of a head, not ",
          options.cos.shape());
  return {batch, time, options.heads, columns / options.heads};
}

/// The arguments of one head.
template <class T>
cpu::AttentionHead<T> head_of(std::int64_t b, std::int64_t h, const Extents& e, const Tensor& y, const Tensor& lse,
                              const Tensor& qkv, const AttentionOptions& options) {
  const std::int64_t columns = e.columns();
  cpu::AttentionHead<T> head;
  head.time = e.time;
  head.width = e.width;
  head.scale = static_cast<T>(options.scale);
  head.stride = 3 * columns;
  head.q = qkv.data<T>() + b * e.time * head.stride + h * e.width;
  head.k = head.q + columns;
  head.v = head.k + columns;
  head.y = y.data<T>() + b * e.time * columns + h * e.width;
  head.y_stride = columns;
  if (lse) head.lse = lse.data<T>() + (b * e.heads + h) * e.time;
  if (options.dropout) {
    const WeightDraws draws(e.time);
    head.drop = true;
    head.key = cpu::PhiloxKey(options.dropout.draws(options.samples[b]));
    head.rate = cpu::DropRate(options.dropout.rate);
    head.group_rows = draws.group_rows;
    head.row_groups = draws.row_groups;
    head.first_group = static_cast<std::uint64_t>(h) * draws.head_groups;
  }
  return head;
}

/// The arguments for a GPU, which computes all heads in one launch.
template <class T>
cuda::PackedAttention<T> all_heads(const Extents& e, const Tensor& y, const Tensor& lse, const Tensor& qkv,
                                   const AttentionOptions& options) {
  require(e.width <= cuda::kMostHeadColumns, "attention: heads of ", e.width, " columns: a GPU takes at most ",
          cuda::kMostHeadColumns);
  const T* q = qkv.data<T>();
  cuda::PackedAttention<T> a{.batch = e.batch,
                             .time = e.time,
                             .heads = e.heads,
                             .width = e.width,
                             .scale = static_cast<real_t<T>>(options.scale),
                             .q = q,
                             .k = q + e.columns(),
                             .v = q + 2 * e.columns(),
                             .stride = 3 * e.columns(),
                             .y = y,
                             .lse = lse};
  a.product_flops = 2 * static_cast<double>(e.batch * e.heads * e.time * e.time * e.width);
  a.dropout = options.dropout;
  a.samples = options.samples.data();
  a.draws = WeightDraws(e.time);
  if (options.cos) {
    a.cos = options.cos.data<real_t<T>>();
    a.sin = options.sin.data<real_t<T>>();
  }
  return a;
}

/// Rotates queries and keys, or their gradients, in place.
void rotate(Stream& stream, const Tensor& qk, const AttentionOptions& options, Rotation rotation) {
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

void attention_forward(Stream& stream, const Tensor& y, const Tensor& lse, const Tensor& qkv,
                       const AttentionOptions& options) {
  const Extents e = extents_of("attention", y, lse, qkv, options);
  on_gpu(y, [&]<class T>() { cuda::packed_attention_forward<T>(stream, all_heads<T>(e, y, lse, qkv, options)); });
  on_cpu(y, [&]<class T>() {
    rotate(stream, qkv, options, Rotation::forward);
    const auto kernel = cpu::active_attention_kernels<T>().forward;
    for_each_head(e, 2, [&](std::int64_t b, std::int64_t h) { kernel(head_of<T>(b, h, e, y, lse, qkv, options)); });
  });
}

void attention_backward(Stream& stream, Target dqkv, const Tensor& dy, const Tensor& y, const Tensor& lse,
                        const Tensor& qkv, const AttentionOptions& options) {
  if (!dqkv) return;
  const Extents e = extents_of("attention backward", y, lse, qkv, options);
  require(dy.shape() == y.shape() && lse.shape().rank() > 0, "attention backward: y is ", y.shape(),
          ", so dy must be too, not ", dy.shape(), ", and lse must not be empty");
  require(dqkv.tensor.size() == qkv.size(), "attention backward: the input is ", qkv.shape(),
          ", so its gradient must be too, not ", dqkv.tensor.shape());
  require(!options.cos || !dqkv.accumulate, "attention backward: the gradient of rotated inputs must be stored");
  const std::int64_t columns = e.columns();
  on_gpu(y, [&]<class T>() {
    cuda::PackedAttention<T> a = all_heads<T>(e, y, lse, qkv, options);
    a.dy = dy.data<T>();
    a.dq = dqkv.tensor.data<T>();
    a.dk = a.dq + columns;
    a.dv = a.dk + columns;
    a.add_dq = a.add_dkv = dqkv.accumulate;
    cuda::packed_attention_backward<T>(stream, a, e.batch * e.time);
  });
  on_cpu(y, [&]<class T>() {
    const auto kernel = cpu::active_attention_kernels<T>().backward;
    for_each_head(e, 5, [&](std::int64_t b, std::int64_t h) {
      cpu::AttentionHead<T> head = head_of<T>(b, h, e, y, lse, qkv, options);
      head.dy = dy.data<T>() + b * e.time * columns + h * e.width;
      head.dq = dqkv.tensor.data<T>() + b * e.time * head.stride + h * e.width;
      head.dk = head.dq + columns;
      head.dv = head.dk + columns;
      head.add = dqkv.accumulate;
      kernel(head);
    });
    rotate(stream, dqkv.tensor, options, Rotation::inverse);
  });
}

}  // namespace lockstep::ops
