#include "lockstep/ops/hyper_connections.hpp"

#include <algorithm>
#include <array>

#include "hyper_connections_kernels.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/gemm/gemm_kernels.hpp"

namespace lockstep::ops {

namespace {

struct Extents {
  std::int64_t tokens, streams, channels, maps;
};
Extents extents_of(const char* what, const Tensor& x, const Tensor& maps, std::int64_t n) {
  const std::int64_t tokens = maps.rows(), width = tokens > 0 ? x.size() / tokens : 0;
  require(n >= 1 && n <= HyperConnection::kMostStreams && maps.columns() == n * (2 + n) && x.size() == tokens * width &&
              width % n == 0,
          what, ": the streams are ", x.shape(), ", the maps ", maps.shape(), ", which do not fit ", n, " streams");
  return {tokens, n, width / n, n * (2 + n)};
}
void check(const char* what, const HyperConnection& h, const Extents& e) {
  const std::int64_t n = e.streams, width = n * e.channels;
  require(h.sinkhorn_steps >= 1 && h.sinkhorn_steps <= HyperConnection::kMostSteps, what, ": ", h.sinkhorn_steps,
          " Sinkhorn steps: must be 1 to ", HyperConnection::kMostSteps);
  require(e.tokens == 0 || (h.weight_pre.shape() == Shape{n, width} && h.weight_post.shape() == Shape{n, width} &&
                            h.weight_res.shape() == Shape{n * n, width}),
          what, ": ", n, " streams of ", e.channels, " channels, weights ", h.weight_pre.shape(), ", ",
          h.weight_post.shape(), " and ", h.weight_res.shape(), "; these do not fit together");
}

template <class T>
cpu::HyperGates<T> gates_of(const HyperConnection& h) {
  return {h.streams(),
          h.sinkhorn_steps,
          {*h.alpha_pre.data<T>(), *h.alpha_post.data<T>(), *h.alpha_res.data<T>()},
          {h.bias_pre.data<T>(), h.bias_post.data<T>(), h.bias_res.data<T>()}};
}

/// The three weights stacked by rows.
template <class T>
T* all_weights(const HyperConnection& h) {
  const std::array<Tensor, 3> parts = {h.weight_pre, h.weight_post, h.weight_res};
  std::int64_t size = 0;
  for (const Tensor& part : parts) size += part.size();
  T* all = static_cast<T*>(cpu::thread_scratch(cpu::Scratch::tables, static_cast<std::size_t>(size) * sizeof(T)));
  T* at = all;
  for (const Tensor& part : parts) at = std::copy_n(part.data<T>(), part.size(), at);
  return all;
}

/// Calls f(first, count) for blocks of tokens whose streams stay in the second-level cache, so that several passes over
/// them read memory once.
template <class F>
void for_token_blocks(std::int64_t tokens, const F& f) {
  constexpr std::int64_t kTokens = 16;
  for (std::int64_t first = 0; first < tokens; first += kTokens) f(first, std::min(kTokens, tokens - first));
}

/// The data of a target, or null if it is empty.
template <class T>
T* pointer(const Target& target) {
  return target ? target.tensor.data<T>() : nullptr;
}

template <class T>
void add(const Target& target, const T* values) {
  if (!target) return;
  T* to = target.tensor.data<T>();
  for (std::int64_t i = 0; i < target.tensor.size(); ++i) to[i] += values[i];
}

}  // namespace

void hyper_maps_forward(Stream& stream, const Tensor& maps, const Tensor& raw, const Tensor& scale, const Tensor& x,
                        const HyperConnection& h) {
  const Extents e = extents_of("hyper_maps", x, maps, h.streams());
  check("hyper_maps", h, e);
  require(raw.shape() == maps.shape() && scale.size() == e.tokens, "hyper_maps: maps is ", maps.shape(),
          ", so raw must be too, not ", raw.shape(), ", and scale have ", e.tokens, " elements, not ", scale.size());
  if (e.tokens == 0) return;
  const std::int64_t width = e.streams * e.channels;
  if (on_gpu(x, [&]<class T>() {
        using R = real_t<T>;
        cuda::hyper_maps_forward<T>(stream, maps.data<R>(), raw.data<R>(), scale.data<R>(), x.data<T>(), e.tokens,
                                    width, h);
      }))
    return;
  visit_float(x.dtype(), [&]<class T>() {
    cpu::product<T>(e.tokens, e.maps, width, raw.data<T>(), x.data<T>(), all_weights<T>(h), true, false);
    cpu::active_hyper_kernels<T>().maps(e.tokens, width, maps.data<T>(), raw.data<T>(), scale.data<T>(), x.data<T>(),
                                        static_cast<T>(h.eps), gates_of<T>(h));
  });
}

void hyper_maps_backward(Stream& stream, Target dx, const HyperConnectionGradients& gradients, const Tensor& dmaps,
                         const Tensor& raw, const Tensor& scale, const Tensor& x, const HyperConnection& h) {
  const Extents e = extents_of("hyper_maps backward", x, dmaps, h.streams());
  check("hyper_maps backward", h, e);
  if (e.tokens == 0) return;
  if (dx && !dx.accumulate) fill_zero(stream, dx.tensor);
  const std::int64_t n = e.streams, width = n * e.channels;
  if (on_gpu(x, [&]<class T>() {
        using R = real_t<T>;
        cuda::hyper_maps_backward<T>(stream, pointer<T>(dx), gradients, dmaps.data<R>(), raw.data<R>(), scale.data<R>(),
                                     x.data<T>(), e.tokens, width, h);
      }))
    return;
  visit_float(x.dtype(), [&]<class T>() {
    T* to = pointer<T>(dx);
    const cpu::HyperKernels<T>& kernels = cpu::active_hyper_kernels<T>();
    std::array<T, 3 + HyperConnection::kMostStreams*(2 + HyperConnection::kMostStreams)> sums{};
    kernels.maps_gradient(e.tokens, dmaps.data<T>(), sums.data(), raw.data<T>(), gates_of<T>(h));
    add(gradients.alpha_pre, sums.data());
    add(gradients.alpha_post, sums.data() + 1);
    add(gradients.alpha_res, sums.data() + 2);
    add(gradients.bias_pre, sums.data() + 3);
    add(gradients.bias_post, sums.data() + 3 + n);
    add(gradients.bias_res, sums.data() + 3 + 2 * n);
    kernels.scale_gradient(e.tokens, width, e.maps, to, dmaps.data<T>(), raw.data<T>(), scale.data<T>(), x.data<T>());
    if (to) cpu::product<T>(e.tokens, width, e.maps, to, dmaps.data<T>(), all_weights<T>(h), false, true);
    T* dweights = static_cast<T*>(
        cpu::thread_scratch(cpu::Scratch::tables, static_cast<std::size_t>(e.maps * width) * sizeof(T)));
    cpu::product_tn<T>(e.maps, width, e.tokens, dweights, dmaps.data<T>(), x.data<T>(), false);
    add(gradients.weight_pre, dweights);
    add(gradients.weight_post, dweights + n * width);
    add(gradients.weight_res, dweights + 2 * n * width);
  });
}

void hyper_read_forward(Stream& stream, const Tensor& u, const Tensor& x, const Tensor& maps, std::int64_t n) {
  const Extents e = extents_of("hyper_read", x, maps, n);
  require(u.size() == e.tokens * e.channels, "hyper_read: the streams are ", x.shape(), ", so u cannot be ", u.shape());
  if (on_gpu(x, [&]<class T>() {
        cuda::hyper_read_forward<T>(stream, u.data<T>(), x.data<T>(), maps.data<real_t<T>>(), e.tokens, e.channels, n);
      }))
    return;
  visit_float(x.dtype(), [&]<class T>() {
    cpu::active_hyper_kernels<T>().mix(e.tokens, e.channels, 1, n, u.data<T>(), x.data<T>(), maps.data<T>(), e.maps, 0,
                                       1, false);
  });
}

void hyper_read_backward(Stream& stream, Target dx, Target dmaps, const Tensor& du, const Tensor& x, const Tensor& maps,
                         std::int64_t n) {
  const Extents e = extents_of("hyper_read backward", x, maps, n);
  if (dmaps && !dmaps.accumulate) fill_zero(stream, dmaps.tensor);
  if (on_gpu(x, [&]<class T>() {
        using R = real_t<T>;
        cuda::hyper_read_backward<T>(stream, pointer<T>(dx), dx.accumulate, pointer<R>(dmaps), du.data<T>(),
                                     x.data<T>(), maps.data<R>(), e.tokens, e.channels, n);
      }))
    return;
  visit_float(x.dtype(), [&]<class T>() {
    const cpu::HyperKernels<T>& kernels = cpu::active_hyper_kernels<T>();
    if (dx)
      kernels.mix(e.tokens, e.channels, n, 1, dx.tensor.data<T>(), du.data<T>(), maps.data<T>(), e.maps, 1, 0,
                  dx.accumulate);
    if (!dmaps) return;
    kernels.products(e.tokens, e.channels, 1, n, dmaps.tensor.data<T>(), e.maps, du.data<T>(), x.data<T>());
  });
}

void hyper_write_forward(Stream& stream, const Tensor& out, const Tensor& x, const Tensor& maps, const Tensor& y,
                         std::int64_t n) {
  const Extents e = extents_of("hyper_write", x, maps, n);
  require(out.size() == x.size() && y.size() == e.tokens * e.channels, "hyper_write: the streams are ", x.shape(),
          ", so the result cannot be ", out.shape(), " or y ", y.shape());
  if (on_gpu(x, [&]<class T>() {
        cuda::hyper_write_forward<T>(stream, out.data<T>(), x.data<T>(), maps.data<real_t<T>>(), y.data<T>(), e.tokens,
                                     e.channels, n);
      }))
    return;
  visit_float(x.dtype(), [&]<class T>() {
    const auto mix = cpu::active_hyper_kernels<T>().mix;
    const std::int64_t c = e.channels;
    for_token_blocks(e.tokens, [&](std::int64_t first, std::int64_t count) {
      T* to = out.data<T>() + first * n * c;
      const T* map = maps.data<T>() + first * e.maps;
      mix(count, c, n, n, to, x.data<T>() + first * n * c, map + 2 * n, e.maps, n, 1, false);
      mix(count, c, n, 1, to, y.data<T>() + first * c, map + n, e.maps, 1, 0, true);
    });
  });
}

void hyper_write_backward(Stream& stream, Target dx, Target dmaps, Target dy, const Tensor& dout, const Tensor& x,
                          const Tensor& maps, const Tensor& y, std::int64_t n) {
  const Extents e = extents_of("hyper_write backward", x, maps, n);
  if (dmaps && !dmaps.accumulate) fill_zero(stream, dmaps.tensor);
  if (on_gpu(x, [&]<class T>() {
        using R = real_t<T>;
        cuda::hyper_write_backward<T>(stream, pointer<T>(dx), dx.accumulate, pointer<R>(dmaps), pointer<T>(dy),
                                      dy.accumulate, dout.data<T>(), x.data<T>(), maps.data<R>(), y.data<T>(), e.tokens,
                                      e.channels, n);
      }))
    return;
  visit_float(x.dtype(), [&]<class T>() {
    const cpu::HyperKernels<T>& kernels = cpu::active_hyper_kernels<T>();
    const std::int64_t c = e.channels;
    T *to_x = pointer<T>(dx), *to_y = pointer<T>(dy), *to_maps = pointer<T>(dmaps);
    for_token_blocks(e.tokens, [&](std::int64_t first, std::int64_t count) {
      const std::int64_t at = first * n * c;
      const T *d = dout.data<T>() + at, *map = maps.data<T>() + first * e.maps;
      if (to_x) kernels.mix(count, c, n, n, to_x + at, d, map + 2 * n, e.maps, 1, n, dx.accumulate);
      if (to_y) kernels.mix(count, c, 1, n, to_y + first * c, d, map + n, e.maps, 0, 1, dy.accumulate);
      if (!to_maps) return;
      T* to = to_maps + first * e.maps;
      kernels.products(count, c, n, 1, to + n, e.maps, d, y.data<T>() + first * c);
      kernels.products(count, c, n, n, to + 2 * n, e.maps, d, x.data<T>() + at);
    });
  });
}

}  // namespace lockstep::ops
