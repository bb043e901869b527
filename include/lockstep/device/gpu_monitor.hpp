#pragma once
#include <array>
#include <memory>
#include <string>

#include "lockstep/base/stopwatch.hpp"
#include "lockstep/device/device.hpp"

namespace lockstep {

/// The driver's measurements of a whole GPU, even if the process uses only an instance (MIG) of it.
struct GpuReading {
  static constexpr std::array kNames = {"utilization_percent", "memory_bytes", "power_w", "sm_clock_mhz"};
  /// In the order of kNames: the share of the driver's last sampling period (at most 1 s) in which a kernel ran; the
  /// memory in use by all processes; the power; the clock of the multiprocessors. Negative: not measured.
  std::array<double, kNames.size()> values = {-1, -1, -1, -1};
};

/// Reads a GPU from NVML, the driver's library, which is loaded at run time.
class GpuMonitor {
 public:
  /// Finds the GPU by its PCI address, because NVML's numbers ignore CUDA_VISIBLE_DEVICES.
  ///
  /// fresh_s  how long read() returns the same reading. A call of the driver can take milliseconds, and the driver
  ///          measures only a few times a second.
  explicit GpuMonitor(Device gpu, double fresh_s = 0.25, const char* library = "libnvidia-ml.so.1");
  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;
  ~GpuMonitor();

  /// Why nothing is measured: no library, no GPU of this address, or the failure of a read(); "" without a failure.
  const std::string& failure() const { return failure_; }
  /// Values that this GPU does not have, or that this user may not read, are negative; after a failure all are.
  GpuReading read();

 private:
  struct Nvml;
  void open(const char* library);
  std::unique_ptr<Nvml> nvml_;
  std::string address_, failure_;
  GpuReading last_;
  Stopwatch since_last_;
  double fresh_s_;
  bool read_any_ = false;
};

}  // namespace lockstep
