#include "device/cuda_launch.hpp"
#include "optim/lazy_adam_kernels.hpp"
#include "optim/optim_cuda.hpp"
#include "optim/sweep_rules.hpp"

// Compiled with -fmad=false: the processor's bits.
namespace lockstep::optim_kernels::cuda {

namespace {

constexpr int kThreads = 64;

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

/// A block per row, a thread per column: elements do not know of one another, so that each stops when it is at rest. The
/// scalars of a step are the same for all threads and come from the cache.
template <class T>
__global__ void __launch_bounds__(kThreads) late_steps_kernel(LateSteps<T> s) {
  const LateRow late = s.rows[blockIdx.x];
  for (std::int64_t c = threadIdx.x; c < s.columns; c += kThreads) {
    const std::int64_t at = late.row * s.columns + c;
    T p = s.p[at], m = s.m[at], v = s.v[at];
    replay(s, late.done, p, m, v);
    if (s.gradient) adam_rule(p, m, v, s.gradient[blockIdx.x * s.columns + c], s.step);
    s.p[at] = p;
    s.m[at] = m;
    s.v[at] = v;
  }
}

}  // namespace

template <class T>
void late_steps(const Stream& stream, const LateSteps<T>& late) {
  if (late.count * late.columns == 0) return;
  gpu::launch(stream, {.grid = dim3(static_cast<unsigned>(late.count)), .block = kThreads}, late_steps_kernel<T>, late);
}
template void late_steps(const Stream&, const LateSteps<float>&);
template void late_steps(const Stream&, const LateSteps<double>&);

}  // namespace lockstep::optim_kernels::cuda
