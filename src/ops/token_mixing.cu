#include "lockstep/ops/token_mixing.hpp"

#include "ops/common/map.hpp"

namespace lockstep::ops {

/// A row is a sequence, or the channels of one that a CPU computes at a time. A position of x, y, dx and dy is `stride`
/// elements after the previous one; in other arrays it is `apart` elements.
namespace token_mixing {

/// y = x + branch, each channel scaled to a root mean square of 1. rstd may be null. Memory bound: the second time x
/// and branch come from the caches.
template <class T>
struct Normalise {
  std::int64_t positions, stride, apart;
  T* y;
  real_t<T>* rstd;
  const T *x, *branch;
  real_t<T> eps;
  LOCKSTEP_MAP void operator()(const auto& at) const {
    const std::int64_t first = at.row * positions * stride;
    decltype(at.get(x)) squares{};
    for (std::int64_t t = 0; t < positions; ++t) {
      const auto v = at.get(x + first + t * stride) + at.get(branch + first + t * apart);
      squares = at.fma(v, v, squares);
    }
    const auto scale = at.inverse_root(squares / static_cast<real_t<T>>(positions), eps);
    for (std::int64_t t = 0; t < positions; ++t)
      at.put(y + first + t * stride, (at.get(x + first + t * stride) + at.get(branch + first + t * apart)) * scale);
    if (rstd != nullptr) at.put(rstd + at.row * stride, scale);
  }
};

/// dv, the gradient of x + branch, and dx (+)= dv unless dx is null. Reads y and dy twice.
template <class T>
struct Slopes {
  std::int64_t positions, stride, apart;
  T *dv, *dx;
  bool add;
  const T *dy, *y;
  const real_t<T>* rstd;
  LOCKSTEP_MAP void operator()(const auto& at) const {
    const std::int64_t first = at.row * positions * stride;
    decltype(at.get(y)) products{};
    for (std::int64_t t = 0; t < positions; ++t)
      products = at.fma(at.get(y + first + t * stride), at.get(dy + first + t * stride), products);
    const auto mean = products / static_cast<real_t<T>>(-positions), scale = at.get(rstd + at.row * stride);
    for (std::int64_t t = 0; t < positions; ++t) {
      const std::int64_t from = first + t * stride;
      const auto d = scale * at.fma(at.get(y + from), mean, at.get(dy + from));
      at.put(dv + first + t * apart, d);
      if (dx != nullptr) at.put(dx + from, d, add);
    }
  }
};

/// dx (+)= a + b; a row is a position.
template <class T>
struct PutSum {
  std::int64_t stride, apart;
  T* dx;
  bool add;
  const T *a, *b;
  LOCKSTEP_MAP void operator()(const auto& at) const {
    at.put(dx + at.row * stride, at.get(a + at.row * apart) + at.get(b + at.row * apart), add);
  }
};

}  // namespace token_mixing

LOCKSTEP_MAPS(token_mixing::Normalise, token_mixing::Slopes, token_mixing::PutSum)

}  // namespace lockstep::ops

#ifndef LOCKSTEP_ISA
#include <omp.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "lockstep/device/cuda_scratch.hpp"
#include "lockstep/ops/gemm.hpp"
#include "ops/gemm/gemm_kernels.hpp"
#include "ops/swiglu/swiglu_kernels.hpp"

namespace lockstep::ops {

namespace cuda {
namespace {

struct MixShape {
  std::int64_t sequences, positions, channels, width;  ///< B, T, D, I
};

/// sum_i += parts_0i + parts_1i + ..., in this order. columns above 0: the parts are the transposes of the sum, with
/// rows of `columns` elements.
template <class R>
struct AddParts {
  std::int64_t count, size, columns;
  R* sum;
  const R* parts;
  template <int N>
  __device__ void at(std::int64_t i) const {
    R total = 0;
    for (std::int64_t p = 0; p < count; ++p) total += parts[p * size + i];
    sum[columns > 0 ? i % columns * (size / columns) + i / columns : i] += total;
  }
};

/// to (columns, rows) = from' (rows, columns).
template <class T>
struct Transpose {
  std::int64_t rows, columns;
  T* to;
  const T* from;
  template <int N>
  __device__ void at(std::int64_t i) const {
    to[i] = from[i % rows * columns + i / rows];
  }
};
/// gate_up' (T, 2I). Sequences have odd lengths, such as 97, and the fast kernels of the library need rows that begin
/// at multiples of 16 bytes: rows of 2I elements do, rows of T do not. 200 KB, against 2 GFLOP of a group.
template <class T>
void transpose_gate_up(const Stream& stream, const MixShape& s, T* to, const T* gate_up) {
  gpu::map<T>(stream, 2 * s.width * s.positions, false, Transpose<T>{2 * s.width, s.positions, to, gate_up});
}

/// Sequences whose gate, up and product stay in the second-level cache until they are combined.
template <class T>
std::int64_t group_of(const Stream& stream, const MixShape& s) {
  const std::int64_t each = 3 * s.width * s.channels * static_cast<std::int64_t>(sizeof(T));
  return std::clamp<std::int64_t>(gpu::cached_bytes(stream) / each, 1, s.sequences);
}

/// Runs a functor of map.hpp over the channels of this many sequences. It accesses these arrays, some perhaps null.
template <class T, class F, class... P>
void over_channels(const Stream& stream, std::int64_t sequences, std::int64_t channels, const F& f,
                   const P*... arrays) {
  constexpr int kPack = gpu::pack_size<T>();
  gpu::map<T>(stream, sequences * channels, channels % kPack == 0 && gpu::aligned_for<kPack>(arrays...),
              gpu::InRows(channels, f));
}

/// Scratch memory after that of product().
std::byte* memory_for(const Stream& stream, const gpu::ScratchPlan& plan) {
  return gpu::scratch(stream, kProductScratch + plan.size_bytes()) + kProductScratch;
}

bool empty(const MixShape& s) { return s.sequences * s.positions * s.channels * s.width == 0; }

template <class T>
void token_mixing_forward(const Stream& stream, const MixShape& s, T* y, T* kept, real_t<T>* rstd, const T* x,
                          const T* gate_up, const T* down, real_t<T> eps) {
  if (empty(s)) return;
  const std::int64_t t = s.positions, d = s.channels, i = s.width, group = group_of<T>(stream, s);
  gpu::ScratchPlan plan;
  const auto product_array = plan.add<T>(group * i * d), both_array = plan.add<T>(kept ? 0 : group * 2 * i * d);
  const auto turned_array = plan.add<T>(2 * i * t);
  std::byte* memory = memory_for(stream, plan);
  T *h = product_array.in(memory), *turned = turned_array.in(memory);
  transpose_gate_up(stream, s, turned, gate_up);
  for (std::int64_t first = 0; first < s.sequences; first += group) {
    const std::int64_t n = std::min(group, s.sequences - first);
    T* both = kept ? kept + first * 2 * i * d : both_array.in(memory);
    product<T>(stream, Product::tn, 2 * i, d, t, both, turned, x + first * t * d, false, static_cast<const T*>(nullptr),
               {n, 2 * i * d, 0, t * d});
    swiglu_gate_forward<T>(stream, n, i * d, h, both, {});
    product<T>(stream, Product::nn, t, d, i, y + first * t * d, down, h, false, static_cast<const T*>(nullptr),
               {n, t * d, 0, i * d});
  }
  over_channels<T>(stream, s.sequences, d, token_mixing::Normalise<T>{t, d, d, y, rstd, x, y, eps}, y, rstd, x);
}

template <class T>
void token_mixing_backward(const Stream& stream, const MixShape& s, T* dx, bool add_x, real_t<T>* dgate_up, bool add_up,
                           real_t<T>* ddown, bool add_down, const T* dy, const T* y, T* kept, const real_t<T>* rstd,
                           const T* x, const T* gate_up, const T* down) {
  using R = real_t<T>;
  const std::int64_t t = s.positions, d = s.channels, i = s.width, size = t * i;
  if (ddown && !add_down) zero_bytes(stream, ddown, static_cast<std::size_t>(size) * sizeof(R));
  if (dgate_up && !add_up) zero_bytes(stream, dgate_up, static_cast<std::size_t>(2 * size) * sizeof(R));
  if (empty(s)) return;
  const std::int64_t group = group_of<T>(stream, s);
  gpu::ScratchPlan plan;
  const auto h_array = plan.add<T>(group * i * d), dh_array = plan.add<T>(group * i * d);
  const auto dv_array = plan.add<T>(group * t * d), turned_array = plan.add<T>(dx ? 2 * i * t : 0);
  const auto parts_array = plan.add<R>(ddown ? group * 2 * size : 0);
  std::byte* memory = memory_for(stream, plan);
  T *h = h_array.in(memory), *dh = dh_array.in(memory), *dv = dv_array.in(memory);
  R* parts = parts_array.in(memory);
  T* turned = turned_array.in(memory);
  if (dx) transpose_gate_up(stream, s, turned, gate_up);
  const R* none = nullptr;
  for (std::int64_t first = 0; first < s.sequences; first += group) {
    const std::int64_t n = std::min(group, s.sequences - first), at = first * t * d;
    T* both = kept + first * 2 * i * d;
    T* to_x = dx ? dx + at : nullptr;
    const real_t<T>* scales = rstd + first * d;
    over_channels<T>(stream, n, d, token_mixing::Slopes<T>{t, d, d, dv, to_x, add_x, dy + at, y + at, scales}, dv, to_x,
                     dy + at, y + at, scales);
    if (ddown) {
      swiglu_gate_forward<T>(stream, n, i * d, h, both, {});
      product<T>(stream, Product::nt, t, i, d, parts, dv, h, false, none, {n, size, t * d, i * d});
      gpu::map<R>(stream, size, false, AddParts<R>{n, size, 0, ddown, parts});
    }
    product<T>(stream, Product::tn, i, d, t, dh, down, dv, false, static_cast<const T*>(nullptr), {n, i * d, 0, t * d});
    swiglu_gate_backward<T>(stream, n, i * d, both, dh, {});
    if (dgate_up) {
      product<T>(stream, Product::nt, t, 2 * i, d, parts, x + at, both, false, none, {n, 2 * size, t * d, 2 * i * d});
      gpu::map<R>(stream, 2 * size, false, AddParts<R>{n, 2 * size, 2 * i, dgate_up, parts});
    }
    if (to_x)
      product<T>(stream, Product::nn, t, d, 2 * i, to_x, turned, both, true, static_cast<const T*>(nullptr),
                 {n, t * d, 0, 2 * i * d});
  }
}

}  // namespace
}  // namespace cuda

namespace {

using cuda::MixShape;

/// Bytes of gate and up for some channels of a sequence, which stay in the second-level cache until they are combined.
constexpr std::int64_t kBlockBytes = 512 << 10;

MixShape shape_of(const char* what, const Tensor& y, const Tensor& kept, const Tensor& rstd, const Tensor& x,
                  const Tensor& gate_up, const Tensor& down) {
  require(x.shape().rank() == 3 && down.shape().rank() == 2 && y.shape() == x.shape(), what, ": x is ", x.shape(),
          ", y ", y.shape(), ", down ", down.shape(), "; must be (B, T, D), the same, and (T, I)");
  const MixShape s = {x.shape()[0], x.shape()[1], x.shape()[2], down.shape()[1]};
  require(down.shape() == Shape{s.positions, s.width} && gate_up.shape() == Shape{2 * s.width, s.positions}, what,
          ": x is ", x.shape(), ", so gate_up must be (2I, ", s.positions, ") and down (", s.positions, ", I), not ",
          gate_up.shape(), " and ", down.shape());
  require((!kept && !rstd) || (kept.shape() == Shape{s.sequences, 2 * s.width, s.channels} &&
                               rstd.shape() == Shape{s.sequences, s.channels}),
          what, ": kept must be (", s.sequences, ", ", 2 * s.width, ", ", s.channels, ") and rstd (", s.sequences, ", ",
          s.channels, "), not ", kept.shape(), " and ", rstd.shape());
  return s;
}

/// The channels of a sequence in chunks of whole panels.
struct Chunks {
  std::int64_t channels, most, count;
  Chunks(const MixShape& s, std::int64_t value_bytes, std::int64_t panel)
      : channels(s.channels),
        most(std::max<std::int64_t>(kBlockBytes / (2 * s.width * value_bytes) / panel, 1) * panel),
        count((s.channels + most - 1) / most) {}
  std::int64_t first(std::int64_t chunk) const { return chunk * most; }
  std::int64_t size(std::int64_t chunk) const { return std::min(most, channels - first(chunk)); }
};

template <class T>
T* packed_b(const cpu::GemmKernels<T>& gemm, std::int64_t n, std::int64_t k) {
  return cpu::thread_scratch<T>(cpu::Scratch::packed_b, gemm.packed_size(n, k));
}

/// Arrays of these sizes in the calling thread's scratch memory.
template <class T, std::size_t N>
std::array<T*, N> scratch(const std::array<std::int64_t, N>& sizes) {
  std::int64_t total = 0;
  for (const std::int64_t size : sizes) total += size;
  T* next = cpu::thread_scratch<T>(cpu::Scratch::partial, total);
  std::array<T*, N> arrays;
  for (std::size_t i = 0; i < N; ++i) arrays[i] = std::exchange(next, next + sizes[i]);
  return arrays;
}

/// A weight's gradient: the sum of blocks of at least kTnRows columns, in ascending order.
template <class T>
class WeightSum {
 public:
  WeightSum(const Target& to, T* block) : to_(to.tensor.data<T>()), size_(to.tensor.size()), block_(block) {
    if (!to.accumulate) std::fill_n(to_, size_, T{0});
  }
  /// += a (M, columns) b (N, columns)^T; the rows of b are `stride` apart.
  void add(const cpu::GemmKernels<T>& gemm, std::int64_t m, std::int64_t n, std::int64_t columns, const T* a,
           const T* b, std::int64_t stride) {
    T* packed = packed_b(gemm, n, columns);
    gemm.pack_transposed(packed, b, stride, n, columns, 0, n);
    gemm.rows(m, n, columns, block_, a, packed, held_ > 0, {});
    held_ += columns;
    if (held_ >= kTnRows) flush();
  }
  void flush() {
    if (held_ == 0) return;
    for (std::int64_t i = 0; i < size_; ++i) to_[i] += block_[i];
    held_ = 0;
  }

 private:
  T* to_;
  std::int64_t size_;
  T* block_;
  std::int64_t held_ = 0;  ///< columns that block_ is the sum of
};

}  // namespace

void token_mixing_forward(Stream& stream, const Tensor& y, const Tensor& kept, const Tensor& rstd, const Tensor& x,
                          const Tensor& gate_up, const Tensor& down, double eps) {
  const MixShape s = shape_of("token mixing", y, kept, rstd, x, gate_up, down);
  on_gpu(x, [&]<class T>() {
    cuda::token_mixing_forward<T>(stream, s, y, kept, rstd, x, gate_up, down, static_cast<real_t<T>>(eps));
  });
  on_cpu(x, [&]<class T>() {
    const cpu::GemmKernels<T>& gemm = cpu::active_gemm_kernels<T>();
    const Chunks chunks(s, sizeof(T), gemm.panel_width);
    const std::int64_t t = s.positions, d = s.channels, i = s.width, tasks = s.sequences * chunks.count;
#pragma omp parallel for schedule(dynamic) if (!omp_in_parallel() && tasks > 1)
    for (std::int64_t task = 0; task < tasks; ++task) {
      const std::int64_t b = task / chunks.count, first = chunks.first(task % chunks.count),
                         n = chunks.size(task % chunks.count), at = b * t * d + first;
      const auto [own, h, branch] = scratch<T, 3>({kept ? 0 : 2 * i * n, i * n, t * n});
      T* both = kept ? kept.data<T>() + (b * d + first) * 2 * i : own;
      T* packed = packed_b(gemm, n, std::max(t, i));
      gemm.pack_plain(packed, x.data<T>() + at, d, n, t, 0, n);
      gemm.rows(2 * i, n, t, both, gate_up, packed, false, {});
      cpu::active_swiglu_kernels<T>().forward(1, i * n, h, both);
      gemm.pack_plain(packed, h, n, n, i, 0, n);
      gemm.rows(t, n, i, branch, down, packed, false, {});
      T* scales = rstd ? rstd.data<T>() + b * d + first : nullptr;
      cpu::active_map<T>(
          1, n,
          token_mixing::Normalise<T>{t, d, n, y.data<T>() + at, scales, x.data<T>() + at, branch, static_cast<T>(eps)});
    }
  });
}

void token_mixing_backward(Stream& stream, Target dx, Target dgate_up, Target ddown, const Tensor& dy, const Tensor& y,
                           const Tensor& kept, const Tensor& rstd, const Tensor& x, const Tensor& gate_up,
                           const Tensor& down) {
  const MixShape s = shape_of("token mixing backward", y, kept, rstd, x, gate_up, down);
  require(dy.shape() == x.shape() && (!dx || dx.tensor.shape() == x.shape()) && !dgate_up == !ddown &&
              (!ddown || (dgate_up.tensor.shape() == gate_up.shape() && ddown.tensor.shape() == down.shape())),
          "token mixing backward: x is ", x.shape(), ", dy ", dy.shape(), ", dx ", dx.tensor.shape(), ", dgate_up ",
          dgate_up.tensor.shape(), ", ddown ", ddown.tensor.shape(), "; these do not fit together");
  on_gpu(x, [&]<class T>() {
    cuda::token_mixing_backward<T>(stream, s, dx.tensor, dx.accumulate, dgate_up.tensor, dgate_up.accumulate,
                                   ddown.tensor, ddown.accumulate, dy, y, kept, rstd, x, gate_up, down);
  });
  on_cpu(x, [&]<class T>() {
    const cpu::GemmKernels<T>& gemm = cpu::active_gemm_kernels<T>();
    const cpu::SwigluKernels<T>& gate = cpu::active_swiglu_kernels<T>();
    const Chunks chunks(s, sizeof(T), gemm.panel_width);
    const std::int64_t t = s.positions, d = s.channels, i = s.width, most = std::min(chunks.most, d);
    const auto [h, dh, dv, down_block, up_block] =
        scratch<T, 5>({std::max(i, t) * most, i * most, t * most, ddown ? t * i : 0, ddown ? 2 * i * t : 0});
    std::optional<WeightSum<T>> to_down, to_up;
    if (ddown) to_down.emplace(ddown, down_block), to_up.emplace(dgate_up, up_block);
    for (std::int64_t task = 0; task < s.sequences * chunks.count; ++task) {
      const std::int64_t b = task / chunks.count, first = chunks.first(task % chunks.count),
                         n = chunks.size(task % chunks.count), at = b * t * d + first;
      T* both = kept.data<T>() + (b * d + first) * 2 * i;
      cpu::active_map<T>(1, n,
                         token_mixing::Slopes<T>{t, d, n, dv, nullptr, false, dy.data<T>() + at, y.data<T>() + at,
                                                 rstd.data<T>() + b * d + first});
      if (ddown) {
        gate.forward(1, i * n, h, both);
        to_down->add(gemm, t, i, n, dv, h, n);
      }
      gemm.tn(i, n, t, dh, down, dv, false, 0, i);
      gate.backward(1, i * n, both, dh);
      if (ddown) to_up->add(gemm, 2 * i, t, n, both, x.data<T>() + at, d);
      if (!dx) continue;
      T* through = h;  // (T, n), in the memory of h, which is no longer needed
      gemm.tn(t, n, 2 * i, through, gate_up, both, false, 0, t);
      cpu::active_map<T>(t, n, token_mixing::PutSum<T>{d, n, dx.tensor.data<T>() + at, dx.accumulate, dv, through});
    }
    if (ddown) to_down->flush(), to_up->flush();
  });
}

}  // namespace lockstep::ops
#endif
