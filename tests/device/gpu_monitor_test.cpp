#include "lockstep/device/gpu_monitor.hpp"

#include "support/devices.hpp"
#include "support/test.hpp"

namespace {

using Values = std::array<double, 4>;
constexpr Values kNone = {-1, -1, -1, -1};

/// Selects the behaviour of the stand-in for NVML (tests/cuda_host/nvml.cpp).
class Behaviour {
 public:
  explicit Behaviour(const char* text) { ::setenv(kVariable, text, 1); }
  Behaviour(const Behaviour&) = delete;
  Behaviour& operator=(const Behaviour&) = delete;
  ~Behaviour() { ::unsetenv(kVariable); }

 private:
  static constexpr const char* kVariable = "LOCKSTEP_CUDA_HOST_NVML";
};

GpuMonitor monitor_of(int gpu) { return GpuMonitor({DeviceKind::cuda, gpu}, 0); }

}  // namespace

TEST_SUITE("device.gpu_monitor.cuda" * doctest::skip(!test::on_stand_in())) {
  TEST_CASE("each GPU is found by its address") {
    for (int gpu = 0; gpu < gpu_count(); ++gpu) {
      GpuMonitor monitor({DeviceKind::cuda, gpu});
      CHECK(monitor.failure() == "");
      CHECK(monitor.read().values == Values{50.0 + gpu, gpu * 1073741824.0, 100.0 + gpu, 1000.0 + gpu});
    }
  }

  TEST_CASE("a missing library, or one that is not NVML, gives no measurement and a reason") {
    GpuMonitor missing({DeviceKind::cuda, 0}, 0, "libnvidia-ml-of-nobody.so.1");
    CHECK(missing.failure().find("loading NVML: libnvidia-ml-of-nobody.so.1: cannot open") == 0);
    CHECK(missing.read().values == kNone);
    GpuMonitor other({DeviceKind::cuda, 0}, 0, "libm.so.6");
    CHECK(other.failure().find("finding nvmlInit_v2 in NVML") == 0);
    CHECK(other.read().values == kNone);
  }

  TEST_CASE("NVML that does not start is a failure") {
    const Behaviour behaviour("no-driver");
    GpuMonitor monitor = monitor_of(1);
    CHECK(monitor.failure() == "starting NVML for GPU 0000:01:00.0: Driver Not Loaded");
    CHECK(monitor.read().values == kNone);
  }

  TEST_CASE("values that a GPU with instances refuses are absent, and the others remain") {
    const Behaviour behaviour("mig");
    GpuMonitor monitor = monitor_of(2);
    CHECK(monitor.read().values == Values{-1, -1, 102, 1002});
    CHECK(monitor.failure() == "");
  }

  TEST_CASE("a GPU that is lost ends the readings") {
    GpuMonitor monitor = monitor_of(3);
    CHECK(monitor.read().values[2] == 103);
    {
      const Behaviour behaviour("lost=0");
      CHECK(monitor.read().values == kNone);
      CHECK(monitor.failure() == "reading GPU 0000:03:00.0: GPU is lost");
    }
    CHECK(monitor.read().values == kNone);
  }

  TEST_CASE("a fresh reading is repeated without a call of the driver") {
    GpuMonitor monitor({DeviceKind::cuda, 0}, 1e9);
    const Values first = monitor.read().values;
    const Behaviour behaviour("lost=0");
    CHECK(monitor.read().values == first);
    CHECK(monitor.failure() == "");
  }
}
