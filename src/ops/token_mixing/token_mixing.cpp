#include "lockstep/ops/token_mixing.hpp"

#include <omp.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "lockstep/ops/gemm.hpp"
#include "ops/common/on_gpu.hpp"
#include "ops/gemm/gemm_kernels.hpp"
#include "ops/swiglu/swiglu_kernels.hpp"
#include "token_mixing_kernels.hpp"

namespace lockstep::ops {

namespace {

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
      cpu::active_token_mixing_kernels<T>().normalise(t, n, d, y.data<T>() + at,
                                                      rstd ? rstd.data<T>() + b * d + first : nullptr, x.data<T>() + at,
                                                      branch, static_cast<T>(eps));
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
    const cpu::TokenMixingKernels<T>& mixing = cpu::active_token_mixing_kernels<T>();
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
      mixing.slopes(t, n, d, dv, dy.data<T>() + at, y.data<T>() + at, rstd.data<T>() + b * d + first);
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
      mixing.put_sum(t, n, d, dx.tensor.data<T>() + at, dx.accumulate, dv, through);
    }
    if (ddown) to_down->flush(), to_up->flush();
  });
}

}  // namespace lockstep::ops
