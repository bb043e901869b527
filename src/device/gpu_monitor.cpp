#include "lockstep/device/gpu_monitor.hpp"

#include <dlfcn.h>

#include "lockstep/base/error.hpp"

namespace lockstep {

/// The functions of NVML that this file calls, as nvml.h declares them.
struct GpuMonitor::Nvml {
  using Status = int;
  static constexpr Status kSuccess = 0, kNotSupported = 3, kNoPermission = 4;
  static constexpr int kSmClock = 1;
  struct Utilization {
    unsigned gpu, memory;  ///< percent
  };
  struct Memory {
    unsigned long long total, free, used;
  };

  Status (*init)() = nullptr;
  Status (*shutdown)() = nullptr;
  const char* (*error_string)(Status) = nullptr;
  Status (*handle_by_address)(const char*, void**) = nullptr;
  Status (*utilization)(void*, Utilization*) = nullptr;
  Status (*memory)(void*, Memory*) = nullptr;
  Status (*power)(void*, unsigned* milliwatts) = nullptr;
  Status (*clock)(void*, int kind, unsigned* mhz) = nullptr;

  void* library = nullptr;
  void* gpu = nullptr;
  bool initialized = false;

  Nvml() = default;
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml() {
    if (initialized) shutdown();
    if (library != nullptr) ::dlclose(library);
  }
  template <class Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
    require(function != nullptr, "finding ", name, " in NVML: the driver is too old");
  }
  void check(Status status, const char* what, const std::string& address) const {
    require(status == kSuccess, what, " GPU ", address, ": ", error_string(status));
  }
};

GpuMonitor::GpuMonitor(Device gpu, double fresh_s, const char* library)
    : address_(gpu_address(gpu.index)), fresh_s_(fresh_s) {
  try {
    open(library);
  } catch (const Error& error) {
    failure_ = error.what();
    nvml_.reset();
  }
}
GpuMonitor::~GpuMonitor() = default;

void GpuMonitor::open(const char* library) {
  nvml_ = std::make_unique<Nvml>();
  Nvml& n = *nvml_;
  n.library = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  require(n.library != nullptr, "loading NVML: ", n.library == nullptr ? ::dlerror() : "");
  n.find(n.init, "nvmlInit_v2");
  n.find(n.shutdown, "nvmlShutdown");
  n.find(n.error_string, "nvmlErrorString");
  n.find(n.handle_by_address, "nvmlDeviceGetHandleByPciBusId_v2");
  n.find(n.utilization, "nvmlDeviceGetUtilizationRates");
  n.find(n.memory, "nvmlDeviceGetMemoryInfo");
  n.find(n.power, "nvmlDeviceGetPowerUsage");
  n.find(n.clock, "nvmlDeviceGetClockInfo");
  n.check(n.init(), "starting NVML for", address_);
  n.initialized = true;
  n.check(n.handle_by_address(address_.c_str(), &n.gpu), "asking NVML for", address_);
}

GpuReading GpuMonitor::read() {
  if (!nvml_ || (read_any_ && since_last_.seconds() < fresh_s_)) return last_;
  Nvml& n = *nvml_;
  GpuReading now;
  const auto take = [&](Nvml::Status status, double& to, double value) {
    if (status == Nvml::kNotSupported || status == Nvml::kNoPermission) return;
    n.check(status, "reading", address_);
    to = value;
  };
  try {
    Nvml::Utilization utilization{};
    Nvml::Memory memory{};
    unsigned milliwatts = 0, mhz = 0;
    Nvml::Status status = n.utilization(n.gpu, &utilization);
    take(status, now.values[0], utilization.gpu);
    status = n.memory(n.gpu, &memory);
    take(status, now.values[1], static_cast<double>(memory.used));
    status = n.power(n.gpu, &milliwatts);
    take(status, now.values[2], 1e-3 * milliwatts);
    status = n.clock(n.gpu, Nvml::kSmClock, &mhz);
    take(status, now.values[3], mhz);
    last_ = now;
  } catch (const Error& error) {
    failure_ = error.what();
    nvml_.reset();
    last_ = {};
  }
  read_any_ = true;
  since_last_.restart();
  return last_;
}

}  // namespace lockstep
