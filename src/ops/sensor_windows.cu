#include "lockstep/ops/sensor_windows.hpp"

#include "lockstep/device/cuda_half.hpp"
#include "lockstep/device/cuda_launch.hpp"
#include "ops/common/on_gpu.hpp"

namespace lockstep::ops {

namespace {

constexpr int kThreads = 128;

/// One block per sequence. Memory bound: reads the channel, or the three of its triad, and writes y.
template <class T>
__global__ void __launch_bounds__(kThreads)
    sensor_windows_kernel(gpu::Earlier earlier, std::int64_t used, std::int64_t channels, std::int64_t length,
                          T* __restrict__ y, const double* __restrict__ signals, const WindowPick* picks,
                          const SensorSequence* sequences) {
  earlier.wait();
  __shared__ SensorSequence sm_sequence;  // both are in host memory: one thread reads them
  __shared__ WindowPick sm_pick;
  if (threadIdx.x == 0) {
    sm_sequence = sequences[blockIdx.x];
    sm_pick = picks[sm_sequence.pick];
  }
  __syncthreads();
  const SensorSequence& s = sm_sequence;
  const WindowPick& pick = sm_pick;
  const auto sample = [&](std::int64_t channel, std::int64_t t) {
    const std::int64_t at = t + pick.later;
    return at < length ? signals[(pick.window * channels + channel) * length + at]
                       : signals[(pick.next * channels + channel) * length + at - pick.ahead];
  };
  for (std::int64_t t = threadIdx.x; t < used; t += kThreads) {
    if (t >= length) {
      gpu::store(y + blockIdx.x * used + t, static_cast<real_t<T>>(0));
      continue;
    }
    double x = 0;
    if (s.triad < 0) {
      x = sample(s.channel, t);
    } else {
      const double* row = pick.turn.data() + 3 * (s.channel - s.triad);
      x = __dadd_rn(__dadd_rn(__dmul_rn(row[0], sample(s.triad, t)), __dmul_rn(row[1], sample(s.triad + 1, t))),
                    __dmul_rn(row[2], sample(s.triad + 2, t)));
    }
    x = __dmul_rn(__dadd_rn(__dmul_rn(x, s.factor), -s.mean), s.scale);
    gpu::store(y + blockIdx.x * used + t, static_cast<real_t<T>>(x));
  }
}

}  // namespace

void sensor_windows(Stream& stream, const Tensor& y, const Tensor& signals, std::span<const WindowPick> picks,
                    std::span<const SensorSequence> sequences) {
  const auto count = std::ssize(sequences);
  const std::int64_t used = count == 0 ? 0 : y.size() / count;
  require(signals.shape().rank() == 3 && used * count == y.size(), "sensor windows: signals are ", signals.shape(),
          ", y ", y.shape(), " for ", count, " sequences");
  require(signals.device().is_cuda(), "sensor windows: the signals are not on a GPU");
  const bool ran = on_gpu(y, [&]<class T>() {
    gpu::launch(stream, {.grid = count, .block = kThreads}, sensor_windows_kernel<T>, used, signals.shape()[1],
                signals.shape()[2], y.data<T>(), signals.data<double>(), picks.data(), sequences.data());
  });
  require(ran, "sensor windows: y is not on a GPU");
}

}  // namespace lockstep::ops
