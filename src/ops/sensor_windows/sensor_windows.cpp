#include "lockstep/ops/sensor_windows.hpp"

#include "ops/common/on_gpu.hpp"
#include "sensor_windows_kernels.hpp"

namespace lockstep::ops {

void sensor_windows([[maybe_unused]] Stream& stream, const Tensor& y, const Tensor& signals,
                    [[maybe_unused]] std::span<const WindowPick> picks, std::span<const SensorSequence> sequences) {
  const auto count = std::ssize(sequences);
  const std::int64_t used = count == 0 ? 0 : y.size() / count;
  require(signals.shape().rank() == 3 && used * count == y.size(), "sensor windows: signals are ", signals.shape(),
          ", y ", y.shape(), " for ", count, " sequences");
  require(signals.device().is_cuda(), "sensor windows: the signals are not on a GPU");
  const bool ran = on_gpu(y, [&]<class T>() {
    cuda::sensor_windows<T>(stream, count, used, signals.shape()[1], signals.shape()[2], y, signals, picks.data(),
                            sequences.data());
  });
  require(ran, "sensor windows: y is not on a GPU");
}

}  // namespace lockstep::ops
