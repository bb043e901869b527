// A stand-in for NVML, as libnvidia-ml.so.1 beside the programs of the stand-in. The GPU of bus n reports n + 50
// percent, n GiB, 100 + n W and 1000 + n MHz. LOCKSTEP_CUDA_HOST_NVML: no-driver (it does not start), mig (no
// utilisation, and no right to read the memory), lost=N (the GPU is lost after N readings).
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define NVML extern "C" __attribute__((visibility("default")))

namespace {
constexpr int kSuccess = 0, kUninitialized = 1, kInvalid = 2, kNotSupported = 3, kNoPermission = 4, kNotFound = 6,
              kDriverNotLoaded = 9, kLost = 15;
constexpr int kGpus = 4, kSmClock = 1;
std::atomic<int> users = 0, readings = 0;

const char* setting() {
  const char* text = std::getenv("LOCKSTEP_CUDA_HOST_NVML");
  return text != nullptr ? text : "";
}
/// The status of a call for a GPU.
int state(const void* gpu) {
  if (users == 0) return kUninitialized;
  if (gpu == nullptr) return kInvalid;
  return std::strncmp(setting(), "lost=", 5) == 0 && readings > std::atoi(setting() + 5) ? kLost : kSuccess;
}
int state_of_instances(const void* gpu, int refusal) {
  const int found = state(gpu);
  return found == kSuccess && std::strcmp(setting(), "mig") == 0 ? refusal : found;
}
unsigned number(const void* gpu) { return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(gpu)) - 1; }
}  // namespace

NVML int nvmlInit_v2() {
  if (std::strcmp(setting(), "no-driver") == 0) return kDriverNotLoaded;
  ++users;
  return kSuccess;
}
NVML int nvmlShutdown() {
  if (users == 0) return kUninitialized;
  --users;
  return kSuccess;
}
NVML const char* nvmlErrorString(int status) {
  return status == kDriverNotLoaded ? "Driver Not Loaded" : status == kLost ? "GPU is lost" : "stand-in's error";
}
NVML int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** gpu) {
  unsigned domain = 0, bus = 0, device = 0, function = 0;
  if (users == 0) return kUninitialized;
  if (std::sscanf(address, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4) return kInvalid;
  if (bus >= kGpus) return kNotFound;
  *gpu = reinterpret_cast<void*>(std::uintptr_t{bus} + 1);
  return kSuccess;
}
NVML int nvmlDeviceGetUtilizationRates(void* gpu, unsigned* percent) {
  ++readings;
  const int found = state_of_instances(gpu, kNotSupported);
  if (found == kSuccess) percent[0] = 50 + number(gpu);
  return found;
}
NVML int nvmlDeviceGetMemoryInfo(void* gpu, unsigned long long* total_free_used) {
  const int found = state_of_instances(gpu, kNoPermission);
  if (found == kSuccess) total_free_used[2] = std::uint64_t{number(gpu)} << 30;
  return found;
}
NVML int nvmlDeviceGetPowerUsage(void* gpu, unsigned* milliwatts) {
  *milliwatts = 1000 * (100 + number(gpu));
  return state(gpu);
}
NVML int nvmlDeviceGetClockInfo(void* gpu, int kind, unsigned* mhz) {
  if (kind != kSmClock) return kInvalid;
  *mhz = 1000 + number(gpu);
  return state(gpu);
}
