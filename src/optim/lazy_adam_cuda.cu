#include "lockstep/device/cuda_launch.hpp"
#include "optim/lazy_adam_kernels.hpp"
#include "optim/optim_cuda.hpp"
#include "optim/sweep_rules.hpp"

// Compiled with -fmad=false: the processor's bits.
namespace lockstep::optim_kernels::cuda {

namespace {

constexpr int kThreads = 256;

__global__ void note_step_kernel(double* history, std::int64_t index, double rate, double root) {
  history[kStride * index] = rate;
  history[kStride * index + 1] = root;
}

__global__ void __launch_bounds__(kThreads)
    set_steps_kernel(std::int64_t* done, std::int64_t rows, std::int64_t steps) {
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < rows; i += stride) done[i] = steps;
}

/// A thread per row. The largest number wins whatever the order, so that the result does not depend on it.
__global__ void __launch_bounds__(kThreads)
    claim_rows_kernel(ops::RowSet rows, std::int64_t* done, std::int64_t* from, std::int64_t to) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= rows.size()) return;
  static_assert(sizeof(long long) == sizeof(std::int64_t));
  from[i] = atomicMax(reinterpret_cast<long long*>(done + rows[i]), static_cast<long long>(to));
}

/// The steps of an element without gradient, one after the other, until neither this one's move, four times as large, nor
/// a tiny one changes p any more; from there on only the moments.
template <class T>
__device__ void replay(const LateSteps<T>& s, std::int64_t done, T& p, T& m, T& v) {
  const AdamStep<T>& k = s.step;
  if (m == 0 && v == 0) return;
  std::int64_t t = done;
  for (bool moving = m != 0; moving && t < s.to; ++t) {
    const double* scalars = s.history + kStride * (t - s.base);
    const T rate = static_cast<T>(scalars[0]), root = static_cast<T>(scalars[1]);
    m = k.beta1 * m + T(0);
    v = k.beta2 * v + T(0);
    const T move = rate * (m / (std::sqrt(v) * root + k.eps));
    p = p - move;
    if ((t - done) % kLook == kLook - 1 && t + 1 >= s.calm_from)
      moving = !(p - 4 * move == p && p - kTiny<T> == p && p + kTiny<T> == p);
  }
  for (; t < s.to; ++t) {
    m = k.beta1 * m + T(0);
    v = k.beta2 * v + T(0);
  }
}

/// A thread per element, rows one after another: elements do not know of one another, so that each stops when it is at
/// rest. The scalars of a step are the same for all threads of a row and come from the cache. A step of all rows is
/// memory bound: 28 bytes per element in f32.
template <class T>
__global__ void __launch_bounds__(kThreads) late_steps_kernel(LateSteps<T> s) {
  const std::int64_t at = std::int64_t{blockIdx.x} * kThreads + threadIdx.x, elements = s.rows.size() * s.columns;
  if (at >= elements) return;
  const std::int64_t i =
      elements >> 32 == 0 ? static_cast<std::uint32_t>(at) / static_cast<std::uint32_t>(s.columns) : at / s.columns;
  const std::int64_t from = s.from[i], e = s.rows[i] * s.columns + (at - i * s.columns);
  if (from >= s.to && s.gradient == nullptr) return;
  T p = s.p[e], m = s.m[e], v = s.v[e];
  replay(s, from, p, m, v);
  if (s.gradient) adam_rule(p, m, v, s.gradient[at], s.step);
  s.p[e] = p;
  s.m[e] = m;
  s.v[e] = v;
}

unsigned blocks_for(std::int64_t threads) {
  return static_cast<unsigned>(gpu::ceil_div<std::int64_t>(threads, kThreads));
}

}  // namespace

void note_step(const Stream& stream, double* history, std::int64_t index, double rate, double root) {
  gpu::launch(stream, {}, note_step_kernel, history, index, rate, root);
}
void set_steps(const Stream& stream, std::int64_t* done, std::int64_t rows, std::int64_t steps) {
  if (rows > 0) gpu::launch(stream, gpu::grid_for(rows, kThreads), set_steps_kernel, done, rows, steps);
}
void claim_rows(const Stream& stream, const ops::RowSet& rows, std::int64_t* done, std::int64_t* from,
                std::int64_t to) {
  if (rows.size() == 0) return;
  gpu::launch(stream, {.grid = blocks_for(rows.size()), .block = kThreads}, claim_rows_kernel, rows, done, from, to);
}

template <class T>
void late_steps(const Stream& stream, const LateSteps<T>& late) {
  if (late.rows.size() * late.columns == 0) return;
  gpu::launch(stream, {.grid = blocks_for(late.rows.size() * late.columns), .block = kThreads}, late_steps_kernel<T>,
              late);
}
template void late_steps(const Stream&, const LateSteps<float>&);
template void late_steps(const Stream&, const LateSteps<double>&);

}  // namespace lockstep::optim_kernels::cuda
