#include "lockstep/base/instantiate.hpp"
#include "lockstep/device/cuda_launch.hpp"
#include "optim/cuda_kernels.hpp"

// Compiled with -fmad=false, for the same bits as on the CPU.
namespace lockstep::optim_kernels::cuda {

namespace {

using gpu::kWarp;
using gpu::kWholeWarp;
constexpr int kThreads = 128, kWarps = kThreads / kWarp;

/// One thread per column of a table row: blockIdx.x is a sample, blockIdx.y the tile of columns. The block of a row's
/// first sample does the work for all samples of the row: it collects the offsets of their gradients in shared memory,
/// kThreads samples at a time. Gradients are added in order, with four loads in flight.
template <class T>
__global__ void __launch_bounds__(kThreads) sign_descent_kernel(gpu::Earlier earlier, SignDescent<T> d) {
  earlier.wait();
  __shared__ std::int64_t sm_uses[kThreads];
  __shared__ int sm_counts[kWarps];
  if (d.moves != nullptr && !*d.moves) return;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  const std::int64_t sample = blockIdx.x, c = std::int64_t{blockIdx.y} * kThreads + thread;
  const std::int32_t id = d.ids[sample];
  bool seen = false;
  for (std::int64_t i = thread; i < sample && !seen; i += kThreads) seen = d.ids[i] == id;
  if (__syncthreads_or(seen) != 0) return;
  T sum = 0;
  for (std::int64_t first = sample; first < d.samples; first += kThreads) {
    const std::int64_t i = first + thread;
    const bool uses = i < d.samples && d.ids[i] == id;
    const unsigned of_warp = __ballot_sync(kWholeWarp, uses);
    __syncthreads();  // all threads have finished with the previous samples
    if (lane == 0) sm_counts[warp] = __popc(of_warp);
    __syncthreads();
    int before = __popc(of_warp & ((1u << lane) - 1)), count = 0;
    for (int w = 0; w < kWarps; ++w) {
      if (w < warp) before += sm_counts[w];
      count += sm_counts[w];
    }
    if (uses) sm_uses[before] = i * d.columns;
    __syncthreads();
    if (c >= d.columns) continue;
#pragma unroll 4
    for (int k = 0; k < count; ++k) sum += d.gradients[sm_uses[k] + c];
  }
  if (c >= d.columns) return;
  const double lr = d.record != nullptr ? d.record->lr * d.lr : d.lr;
  const T shrink = static_cast<T>(1 - lr * d.weight_decay), rate = static_cast<T>(lr);
  const std::int64_t at = id * d.columns + c;
  const T value = shrink * d.table[at] - rate * static_cast<T>((sum > 0) - (sum < 0));
  d.table[at] = value;
  if (d.shadow != nullptr) d.shadow[at] = value;
}

}  // namespace

template <class T>
void sign_descent(const Stream& stream, const SignDescent<T>& d) {
  gpu::launch(stream, {.grid = {d.samples, gpu::ceil_div(d.columns, kThreads)}, .block = kThreads},
              sign_descent_kernel<T>, d);
}

LOCKSTEP_EACH_FLOAT(sign_descent)

}  // namespace lockstep::optim_kernels::cuda
