#include "lockstep/ops/sensor_windows.hpp"
#include "lockstep/tasks/har/har_task.hpp"
#include "support/devices.hpp"
#include "support/test.hpp"
#include "tasks/har/har_augment.hpp"

TEST_SUITE("tasks.sensor_windows_cuda") {
  TEST_CASE("windows from GPU memory have the bits of those that the CPU draws" * doctest::skip(gpu_count() == 0)) {
    constexpr Device kGpu{DeviceKind::cuda, 0};
    constexpr std::int64_t kWindows = 4, kChannels = 7, kLength = 150, kUsed = 160;  // zeros follow the last sample
    const OwnedTensor signals = random_tensor(DType::f64, {kWindows, kChannels, kLength}, "signals");
    std::vector<std::int32_t> labels(kWindows), following = {1, 60, 2, kLength, 3, 1, -1, 0};
    HarData data;
    data.channel_names = {"acc_x", "acc_y", "acc_z", "pressure", "gyro_x", "gyro_y", "gyro_z"};
    data.signals = signals.view();
    data.labels = Tensor::of(labels.data(), {kWindows});
    data.following = Tensor::of(following.data(), {kWindows, 2});
    const std::vector<std::int32_t> triads = triads_of(data.channel_names);
    const HarAugment augment{.shift = true, .turn = 30, .stretch = 0.2};
    std::vector<ops::WindowPick> picks;
    std::vector<ops::SensorSequence> sequences;
    std::vector<double> expected, factors(kChannels), x(kChannels * kLength);
    std::int64_t shifted = 0;
    for (std::int64_t pick = 0; pick < 3 * kWindows; ++pick) {
      const Philox draws(1, 2, "test", static_cast<std::uint64_t>(pick));
      augment_window(augment, data, triads, pick % kWindows, draws, factors, x.data());
      picks.push_back(draw_change(augment, data, triads, pick % kWindows, draws, factors));
      shifted += picks.back().later > 0 ? 1 : 0;
      for (const std::int64_t channel : {0, 2, 3, 5}) {
        const double mean = 0.25 * static_cast<double>(channel), scale = 1 / 1.7;
        sequences.push_back({.pick = pick,
                             .channel = channel,
                             .triad = channel == 3 ? -1 : channel / 4 * 4,
                             .factor = factors[to_size(channel)],
                             .mean = mean,
                             .scale = scale});
        for (std::int64_t t = 0; t < kUsed; ++t)
          expected.push_back(t < kLength ? (x[to_size(channel * kLength + t)] - mean) * scale : 0);
      }
    }
    CHECK(shifted > 3);
    const auto count = std::ssize(sequences);
    const Tensor exact = Tensor::of(expected.data(), {count, kUsed / 16, 16});
    Stream stream(kGpu);
    const auto pinned = [](const auto& values) {
      Buffer buffer = Buffer::pinned(values.size() * sizeof values[0]);
      std::ranges::copy(values, reinterpret_cast<std::remove_cvref_t<decltype(values[0])>*>(buffer.data()));
      return buffer;
    };
    const Buffer own_picks = pinned(picks), own_sequences = pinned(sequences);
    const OwnedTensor there = on_device(signals, kGpu);
    CHECK_THROWS_WITH_AS(
        ops::sensor_windows(stream, OwnedTensor(DType::f64, exact.shape(), kGpu), signals, {}, sequences),
        "sensor windows: the signals are not on a GPU", Error);
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
      CAPTURE(std::string(name(dtype)));
      const OwnedTensor y(dtype, exact.shape(), kGpu);
      ops::sensor_windows(stream, y, there, {reinterpret_cast<const ops::WindowPick*>(own_picks.data()), picks.size()},
                          {reinterpret_cast<const ops::SensorSequence*>(own_sequences.data()), sequences.size()});
      stream.synchronize();
      CHECK(same_bits(on_cpu(y),
                      is_half(dtype) ? converted(converted(exact, DType::f32), dtype) : converted(exact, dtype)));
    }
  }
}
