#include "optim/sweep_cuda.hpp"

#include "lockstep/base/instantiate.hpp"
#include "lockstep/device/cuda_launch.hpp"
#include "optim/cuda_kernels.hpp"

// Compiled with -fmad=false, for the same bits as on the CPU.
namespace lockstep::optim_kernels::cuda {

namespace {

using gpu::kWarp;
constexpr int kThreads = 256;

/// 16 bytes, the widest load or store of a thread.
template <class T>
struct alignas(16) Pack {
  static constexpr int kLanes = 16 / sizeof(T);
  T lane[kLanes];
};

/// Updates the elements of one 16-byte word.
template <class T, class Step>
__device__ void update_pack(const Vectors<T>& x, std::int64_t at, std::int64_t state, const Step& rule) {
  using P = Pack<T>;
  constexpr int kStates = Step::kStates;
  const P g = *reinterpret_cast<const P*>(x.g + at);
  P p = *reinterpret_cast<const P*>(x.p + at), a{}, b{}, shadow{};
  if (kStates > 0) a = *reinterpret_cast<const P*>(x.state[0] + state);
  if (kStates > 1) b = *reinterpret_cast<const P*>(x.state[1] + state);
  if (x.shadow) shadow = *reinterpret_cast<const P*>(x.shadow + at);
#pragma unroll
  for (int l = 0; l < P::kLanes; ++l) {
    rule(p.lane[l], a.lane[l], b.lane[l], g.lane[l]);
    ema_rule(shadow.lane[l], p.lane[l], x.decay, 1 - x.decay);
  }
  *reinterpret_cast<P*>(x.p + at) = p;
  if (kStates > 0) *reinterpret_cast<P*>(x.state[0] + state) = a;
  if (kStates > 1) *reinterpret_cast<P*>(x.state[1] + state) = b;
  if (x.shadow) *reinterpret_cast<P*>(x.shadow + at) = shadow;
}

/// Updates the rows of a chunk, one warp per row. Rows with a zero gradient keep their weights and state.
template <class T, class Step>
__device__ void update_rows(const FlatChunk& chunk, const Vectors<T>& x, const Step& rule) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t rows = (chunk.end - chunk.begin) / chunk.row;
  for (std::int64_t r = warp; r < rows; r += kThreads / kWarp) {
    const std::int64_t first = chunk.begin + r * chunk.row, to_state = chunk.state - chunk.begin;
    bool mine = false;
    for (std::int64_t c = lane; c < chunk.row; c += kWarp) mine = mine || x.g[first + c] != 0;
    const bool touched = __any_sync(gpu::kWholeWarp, mine) != 0;
    if (!touched && !x.shadow) continue;
    for (std::int64_t c = lane; c < chunk.row; c += kWarp)
      update_element(x, first + c, to_state + first + c, touched, rule);
  }
}

/// One block per chunk of a few thousand elements; one launch for all parameters. Memory bound: adam reads p, m, v, g
/// and writes p, m, v, 28 bytes per element in f32, in 16-byte words; the average adds 8. Unless `now` is null, the
/// step uses its scalars, which decide_kernel() has written.
template <class T, class Step>
__global__ void __launch_bounds__(kThreads, 3)
    sweep_kernel(gpu::Earlier earlier, const FlatChunk* chunks, Vectors<T> x, Step given, const UpdateNow<T>* now) {
  earlier.wait();
  if (now != nullptr && !now->moves) return;
  const Step rule = now != nullptr ? *reinterpret_cast<const Step*>(now->scalars) : given;
  const FlatChunk chunk = chunks[blockIdx.x];
  if (chunk.row > 0) return update_rows(chunk, x, rule);
  constexpr int kLanes = Pack<T>::kLanes;
  const std::int64_t n = chunk.end - chunk.begin;
  const bool aligned = chunk.begin % kLanes == 0 && chunk.state % kLanes == 0;
  const std::int64_t packed = aligned ? n / kLanes * kLanes : 0;
  for (std::int64_t i = std::int64_t{threadIdx.x} * kLanes; i < packed; i += kThreads * kLanes)
    update_pack(x, chunk.begin + i, chunk.state + i, rule);
  for (std::int64_t i = packed + threadIdx.x; i < n; i += kThreads)
    update_element(x, chunk.begin + i, chunk.state + i, true, rule);
}

/// Grid-stride. Traffic: both vectors, read and written once.
template <class T>
__global__ void __launch_bounds__(kThreads) exchange_kernel(gpu::Earlier earlier, std::int64_t n, T* a, T* b) {
  earlier.wait();
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += stride) {
    const T kept = a[i];
    a[i] = b[i];
    b[i] = kept;
  }
}

}  // namespace

template <template <class> class Step, class T>
void sweep(const GpuSweep& s, T* a, T* b, const Step<T>& step) {
  const Vectors<T> x = {s.values.data<T>(), s.gradient.data<T>(), {a, b}, s.average.data<T>(), static_cast<T>(s.decay)};
  gpu::launch(s.stream, {.grid = s.count, .block = kThreads}, sweep_kernel<T, Step<T>>, s.chunks, x, step,
              static_cast<const UpdateNow<T>*>(s.now));
}
#define LOCKSTEP_INSTANTIATE(Step, T) template void sweep(const GpuSweep&, T*, T*, const Step<T>&)
LOCKSTEP_EACH_STEP(LOCKSTEP_INSTANTIATE, float)
LOCKSTEP_EACH_STEP(LOCKSTEP_INSTANTIATE, double)
template <class T>
void exchange(const Stream& stream, std::int64_t n, T* a, T* b) {
  gpu::launch(stream, gpu::grid_for(n, kThreads), exchange_kernel<T>, n, a, b);
}

LOCKSTEP_EACH_FLOAT(exchange)

}  // namespace lockstep::optim_kernels::cuda
