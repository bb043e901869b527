#include "lockstep/ops/hyper_connections.hpp"

#include <algorithm>
#include <array>

#include "hyper_connections_kernels.hpp"
#include "lockstep/base/profile.hpp"
#include "lockstep/ops/row_groups.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/common/row_kernels.hpp"
#include "ops/gemm/cached_values.hpp"
#include "ops/gemm/gemm_kernels.hpp"

namespace lockstep::ops {

namespace {

/// The extents of one stream or n streams in x.
cpu::HyperExtents extents_of(const char* what, const Tensor& x, const Tensor& maps, std::int64_t n) {
  const std::int64_t tokens = maps.rows(), width = tokens > 0 ? x.size() / tokens : 0;
  const bool equal = maps.columns() == 2 * n;
  require(n >= 1 && n <= HyperConnection::kMostStreams && (equal || maps.columns() == n * (2 + n)) &&
              x.size() == tokens * width && (equal || width % n == 0) && !(equal && x.device().is_cuda()),
          what, ": the streams are ", x.shape(), ", the maps ", maps.shape(), ", which do not fit ", n, " streams");
  return {tokens, n, equal ? width : width / n, maps.columns(), equal};
}
/// The same with `out`, which has the n streams or their sum.
cpu::HyperExtents extents_of(const char* what, const Tensor& out, const Tensor& x, const Tensor& maps, const Tensor& y,
                             std::int64_t n) {
  cpu::HyperExtents e = extents_of(what, x, maps, n);
  const std::int64_t size = e.tokens * e.channels;
  e.summed = n > 1 && size > 0 && out.size() == size;
  require(y.size() == size && (e.summed ? !e.equal && !x.device().is_cuda() : out.size() == n * size), what,
          ": the streams are ", x.shape(), ", so the result cannot be ", out.shape(), " or y ", y.shape());
  return e;
}
void check(const char* what, const HyperConnection& h, const cpu::HyperExtents& e) {
  const std::int64_t n = e.streams, width = n * e.channels;
  require(h.sinkhorn_steps >= 1 && h.sinkhorn_steps <= HyperConnection::kMostSteps, what, ": ", h.sinkhorn_steps,
          " Sinkhorn steps: must be 1 to ", HyperConnection::kMostSteps);
  require(e.tokens == 0 || (h.weight_pre.shape() == Shape{n, width} && h.weight_post.shape() == Shape{n, width} &&
                            h.weight_res.shape() == Shape{n * n, width}),
          what, ": ", n, " streams of ", e.channels, " channels, weights ", h.weight_pre.shape(), ", ",
          h.weight_post.shape(), " and ", h.weight_res.shape(), "; these do not fit together");
}

template <class T>
cpu::HyperGates<T> gates_of(const HyperConnection& h, const cpu::HyperExtents& e) {
  return {h.streams(),
          h.sinkhorn_steps,
          !e.equal,
          {*h.alpha_pre.data<T>(), *h.alpha_post.data<T>(), *h.alpha_res.data<T>()},
          {h.bias_pre.data<T>(), h.bias_post.data<T>(), h.bias_res.data<T>()}};
}

/// The weights stacked by rows, cached while a PackedWeights lives. For n equal streams those of pre and post, each the
/// sum of its n parts, because all parts are multiplied by the same values.
template <class T>
struct AllWeights {
  T* data = nullptr;
  cpu::Operand operand = cpu::Operand::weight;

  AllWeights(Stream& stream, const HyperConnection& h, const cpu::HyperExtents& e) {
    const std::int64_t size = e.maps * e.width();
    bool fill = true;
    data = cpu::cached_values(h.weight_pre.data<T>(), size, fill);
    if (!data) {
      data = cpu::thread_scratch<T>(cpu::Scratch::tables, size);
      operand = cpu::Operand::any;
      fill = true;
    }
    if (!fill) return;
    T* at = data;
    for (const Tensor& part : {h.weight_pre, h.weight_post, h.weight_res}) {
      if (at == data + size) break;  // equal streams need no Hres
      const Tensor rows = Tensor::of(at, {part.rows(), e.width()});
      sum_rows(stream, {rows}, part, e.equal ? e.streams : 1);
      at += rows.size();
    }
  }
};

/// Tokens whose streams stay in the second-level cache between two passes over them. A model's threads share its
/// samples, so a call is serial.
constexpr std::int64_t kBlockTokens = 112;

template <class T>
void add(const Target& target, const T* values) {
  if (!target) return;
  T* to = target.tensor.data<T>();
  cpu::active_row_kernels<T>().add(target.tensor.size(), to, values, T{1});
}

}  // namespace

void hyper_maps_forward(Stream& stream, const Tensor& maps, const Tensor& raw, const Tensor& scale, const Tensor& x,
                        const HyperConnection& h) {
  const cpu::HyperExtents e = extents_of("hyper_maps", x, maps, h.streams());
  check("hyper_maps", h, e);
  require(raw.shape() == maps.shape() && scale.size() == e.tokens, "hyper_maps: maps is ", maps.shape(),
          ", so raw must be too, not ", raw.shape(), ", and scale have ", e.tokens, " elements, not ", scale.size());
  if (e.tokens == 0) return;
  const std::int64_t width = e.width();
  on_gpu(x, [&]<class T>() { cuda::hyper_maps_forward<T>(stream, maps, raw, scale, x, e.tokens, width, h); });
  on_cpu(x, [&]<class T>() {
    const AllWeights<T> weights(stream, h, e);
    for (std::int64_t first = 0; first < e.tokens; first += kBlockTokens) {
      const std::int64_t count = std::min(kBlockTokens, e.tokens - first);
      T *of_maps = maps.data<T>() + first * e.maps, *of_raw = raw.data<T>() + first * e.maps;
      const T* of_x = x.data<T>() + first * width;
      cpu::product<T>(count, e.maps, width, of_raw, of_x, weights.data, true, false, {}, weights.operand);
      cpu::active_hyper_kernels<T>().maps(count, width, of_maps, of_raw, scale.data<T>() + first, of_x,
                                          static_cast<T>(h.eps), gates_of<T>(h, e));
    }
  });
}

void hyper_maps_backward(Stream& stream, Target dx, const HyperConnectionGradients& gradients, const Tensor& dmaps,
                         const Tensor& raw, const Tensor& scale, const Tensor& x, const HyperConnection& h) {
  const cpu::HyperExtents e = extents_of("hyper_maps backward", x, dmaps, h.streams());
  check("hyper_maps backward", h, e);
  if (e.tokens == 0) return;
  if (dx && !dx.accumulate) fill_zero(stream, dx.tensor);
  const std::int64_t n = e.streams, width = e.width();
  on_gpu(x, [&]<class T>() {
    cuda::hyper_maps_backward<T>(stream, dx.tensor, gradients, dmaps, raw, scale, x, e.tokens, width, h);
  });
  on_cpu(x, [&]<class T>() {
    T* to = dx.tensor.data<T>();
    const cpu::HyperKernels<T>& kernels = cpu::active_hyper_kernels<T>();
    std::array<T, 3 + HyperConnection::kMostStreams*(2 + HyperConnection::kMostStreams)> sums{};
    kernels.maps_gradient(e.tokens, dmaps, sums.data(), raw, gates_of<T>(h, e));
    add(gradients.alpha_pre, sums.data());
    add(gradients.alpha_post, sums.data() + 1);
    add(gradients.alpha_res, sums.data() + 2);
    add(gradients.bias_pre, sums.data() + 3);
    add(gradients.bias_post, sums.data() + 3 + n);
    if (!e.equal) add(gradients.bias_res, sums.data() + 3 + 2 * n);
    kernels.input_gradient(e.tokens, width, e.maps, to, dmaps, raw, scale, x, AllWeights<T>(stream, h, e).data);
    profile::add_flops(to ? 2.0 * static_cast<double>(e.tokens * e.maps * width) : 0);
    T* dweights = cpu::thread_scratch<T>(cpu::Scratch::tables, e.maps * width);
    cpu::product_tn<T>(e.maps, width, e.tokens, dweights, dmaps, x, false);
    const std::int64_t copies = e.equal ? n : 1;  // of the gradient of a sum of parts
    copy_rows(stream, gradients.weight_pre, Tensor::of(dweights, {n, width}), copies);
    copy_rows(stream, gradients.weight_post, Tensor::of(dweights + n * width, {n, width}), copies);
    if (!e.equal) copy_rows(stream, gradients.weight_res, Tensor::of(dweights + 2 * n * width, {n * n, width}), 1);
  });
}

void hyper_read_forward(Stream& stream, const Tensor& u, const Tensor& x, const Tensor& maps, std::int64_t n) {
  const cpu::HyperExtents e = extents_of("hyper_read", x, maps, n);
  require(u.size() == e.tokens * e.channels, "hyper_read: the streams are ", x.shape(), ", so u cannot be ", u.shape());
  on_gpu(x, [&]<class T>() { cuda::hyper_read_forward<T>(stream, u, x, maps, e.tokens, e.channels, n); });
  on_cpu(x, [&]<class T>() { cpu::active_hyper_stream_kernels<T>().read(e, u, x, maps); });
}

void hyper_read_backward(Stream& stream, Target dx, Target dmaps, const Tensor& du, const Tensor& x, const Tensor& maps,
                         std::int64_t n) {
  const cpu::HyperExtents e = extents_of("hyper_read backward", x, maps, n);
  if (dmaps && !dmaps.accumulate) fill_zero(stream, dmaps.tensor);
  on_gpu(x, [&]<class T>() {
    cuda::hyper_read_backward<T>(stream, dx.tensor, dx.accumulate, dmaps.tensor, du, x, maps, e.tokens, e.channels, n);
  });
  on_cpu(x, [&]<class T>() {
    cpu::active_hyper_stream_kernels<T>().read_gradient(e, dx.tensor, dx.accumulate, dmaps.tensor, du, x, maps);
  });
}

void hyper_write_forward(Stream& stream, const Tensor& out, const Tensor& x, const Tensor& maps, const Tensor& y,
                         std::int64_t n) {
  const cpu::HyperExtents e = extents_of("hyper_write", out, x, maps, y, n);
  on_gpu(x, [&]<class T>() { cuda::hyper_write_forward<T>(stream, out, x, maps, y, e.tokens, e.channels, n); });
  on_cpu(x, [&]<class T>() { cpu::active_hyper_stream_kernels<T>().write(e, out, x, maps, y); });
}

void hyper_write_backward(Stream& stream, Target dx, Target dmaps, Target dy, const Tensor& dout, const Tensor& x,
                          const Tensor& maps, const Tensor& y, std::int64_t n) {
  const cpu::HyperExtents e = extents_of("hyper_write backward", dout, x, maps, y, n);
  if (dmaps && !dmaps.accumulate) fill_zero(stream, dmaps.tensor);
  on_gpu(x, [&]<class T>() {
    cuda::hyper_write_backward<T>(stream, dx.tensor, dx.accumulate, dmaps.tensor, dy.tensor, dy.accumulate, dout, x,
                                  maps, y, e.tokens, e.channels, n);
  });
  on_cpu(x, [&]<class T>() {
    cpu::active_hyper_stream_kernels<T>().write_gradient(e, dx.tensor, dx.accumulate, dy.tensor, dy.accumulate,
                                                         dmaps.tensor, dout, x, maps, y);
  });
}

}  // namespace lockstep::ops
