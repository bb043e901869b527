#include "cuda_device.hpp"

#include <cuda_runtime.h>

#include <cstring>
#include <mutex>
#include <vector>

#include "lockstep/base/text.hpp"
#include "lockstep/device/cuda_check.hpp"
#include "lockstep/device/event.hpp"

namespace lockstep {

using gpu::check;

namespace {
/// Throws if work that the host waits for has failed.
void check_wait(cudaError_t status) {
  const bool fault =
      status == cudaErrorIllegalAddress || status == cudaErrorMisalignedAddress || status == cudaErrorLaunchFailure;
  check(status, "waiting for the GPU",
        fault ? ", a kernel failed (LOCKSTEP_CUDA_SYNC=1 with --graphs off names it)" : "");
}

cudaDeviceProp properties_of(int index) {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, index), "describing cuda:", index);
  return properties;
}
cudaEvent_t native(const auto& event) { return static_cast<cudaEvent_t>(event.get()); }
}  // namespace

int gpu_count() {
  int found = 0;
  const cudaError_t status = cudaGetDeviceCount(&found);
  if (status != cudaSuccess) cudaGetLastError();  // clears it; why_no_gpu() tells
  return status == cudaSuccess ? found : 0;
}

std::string why_no_gpu() {
  int found = 0, driver = 0, runtime = 0;
  const cudaError_t status = cudaGetDeviceCount(&found);
  cudaGetLastError();
  cudaDriverGetVersion(&driver);  // 0 without a driver
  cudaRuntimeGetVersion(&runtime);
  const auto version = [](int v) { return join(v / 1000, ".", v % 1000 / 10); };
  if (driver == 0) return "no NVIDIA driver is installed here, or the container was started without it";
  if (status == cudaErrorInsufficientDriver)
    return join("the driver supports CUDA ", version(driver), ", but this program needs ", version(runtime),
                ": update the driver, or build with a toolkit that is not newer than it");
  if (status == cudaSuccess || status == cudaErrorNoDevice)
    return "the driver shows this process no GPU: check nvidia-smi, CUDA_VISIBLE_DEVICES and the job's --gpus";
  return join(cudaGetErrorString(status), " (", cudaGetErrorName(status), "): check nvidia-smi");
}

std::string describe_gpu(int index) {
  const cudaDeviceProp properties = properties_of(index);
  return join(properties.name, ", compute capability ", properties.major, ".", properties.minor, ", ",
              human_bytes(properties.totalGlobalMem));
}

std::string gpu_address(int index) {
  char text[32] = "";
  check(cudaDeviceGetPCIBusId(text, sizeof text, index), "reading the PCI address of cuda:", index);
  return text;
}

std::string gpu_uuid(int index) {
  std::string text;
  for (const char byte : properties_of(index).uuid.bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    text += {kDigits[static_cast<unsigned char>(byte) >> 4], kDigits[byte & 15]};
  }
  return text;
}

Device current_gpu() {
  require_usage(gpu_count() > 0, "using a GPU: ", why_no_gpu());
  Device found{DeviceKind::cuda, 0};
  check(cudaGetDevice(&found.index), "asking for the current GPU");
  return found;
}

CurrentGpu::CurrentGpu(Device gpu) : before_(current_gpu().index) {
  require_usage(gpu.index >= 0 && gpu.index < gpu_count(), "using cuda:", gpu.index, ": this process sees ",
                gpu_count(), " GPUs");
  check(cudaSetDevice(gpu.index), "using cuda:", gpu.index);
}
CurrentGpu::~CurrentGpu() { cudaSetDevice(before_); }

Event::Event(Device device, Kind kind) {
  require(device.is_cuda(), "creating an event of ", name(device), ": only GPUs have events");
  check(cudaSetDevice(device.index), "using cuda:", device.index);
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, kind == Kind::time ? 0U : unsigned{cudaEventDisableTiming}),
        "creating an event on cuda:", device.index);
  event_.reset(event);
}
void Event::Destroy::operator()(void* event) const { cudaEventDestroy(static_cast<cudaEvent_t>(event)); }
void Event::record(const Stream& stream) const {
  check(cudaEventRecord(native(event_), static_cast<cudaStream_t>(stream.native())), "recording an event");
}
bool Event::passed() const {
  const cudaError_t state = cudaEventQuery(native(event_));
  if (state == cudaErrorNotReady) {
    cudaGetLastError();  // no error, but the next launch would report it
    return false;
  }
  check_wait(state);
  return true;
}
void Event::wait() const { check_wait(cudaEventSynchronize(native(event_))); }
double Event::seconds_since(const Event& earlier) const {
  float ms = 0;
  check(cudaEventElapsedTime(&ms, native(earlier.event_), native(event_)), "reading the time between two events");
  return 1e-3 * static_cast<double>(ms);
}

namespace gpu {

void* main_stream(int device) {
  static std::mutex mutex;
  static std::vector<cudaStream_t> streams;  // never destroyed: the driver may shut down before static objects
  const std::lock_guard lock(mutex);
  if (streams.empty()) streams.resize(static_cast<std::size_t>(gpu_count()));
  require(device >= 0 && device < static_cast<int>(streams.size()), "using cuda:", device, ": this process sees ",
          streams.size(), " GPUs", streams.empty() ? "; " + why_no_gpu() : "",
          "; check --gpu-ids, or use --device cpu");
  check(cudaSetDevice(device), "using cuda:", device);
  cudaStream_t& stream = streams[static_cast<std::size_t>(device)];
  if (stream == nullptr)
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream on cuda:", device);
  return stream;
}

void synchronize(void* stream) { check_wait(cudaStreamSynchronize(static_cast<cudaStream_t>(stream))); }

void synchronize_device() { check_wait(cudaDeviceSynchronize()); }

void copy(void* stream, void* to, const void* from, std::size_t size_bytes) {
  check(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream)), "copying ",
        human_bytes(size_bytes), " from or to the GPU");
}

void zero(void* stream, void* memory, std::size_t size_bytes) {
  check(cudaMemsetAsync(memory, 0, size_bytes, static_cast<cudaStream_t>(stream)), "clearing ", human_bytes(size_bytes),
        " of GPU memory");
}

void free_and_total(int device, std::size_t& free, std::size_t& total) {
  check(cudaSetDevice(device), "using cuda:", device);
  check(cudaMemGetInfo(&free, &total), "reading the memory use of cuda:", device);
}

std::byte* allocate(int device, std::size_t size_bytes, MemoryUse use) {
  check(cudaSetDevice(device), "using cuda:", device);
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, size_bytes);
  if (status != cudaSuccess) cudaGetLastError();  // clears the error: it is reported here, not by the next launch
  if (status == cudaErrorMemoryAllocation) {
    const GpuMemory now = gpu_memory(device);
    throw OutOfMemory(
        join("allocating ", human_bytes(size_bytes), " for ", name(use), " on cuda:", device, ": ",
             human_bytes(now.free), " of ", human_bytes(now.total), " are free; this process holds ", describe(now)),
        use);
  }
  check(status, "allocating ", human_bytes(size_bytes), " for ", name(use), " on cuda:", device);
  check(cudaMemset(memory, 0, size_bytes), "clearing ", human_bytes(size_bytes), " on cuda:", device);
  check(cudaStreamSynchronize(nullptr), "clearing ", human_bytes(size_bytes),
        " on cuda:", device);  // other streams are not ordered after this one
  return static_cast<std::byte*>(memory);
}

std::byte* allocate_pinned(std::size_t size_bytes) {
  void* memory = nullptr;
  check(cudaMallocHost(&memory, size_bytes), "allocating ", human_bytes(size_bytes), " of page-locked host memory");
  std::memset(memory, 0, size_bytes);
  return static_cast<std::byte*>(memory);
}

bool is_gpu_memory(const void* p) {
  cudaPointerAttributes attributes = {};
  check(cudaPointerGetAttributes(&attributes, p), "asking for the kind of memory at ", p);
  return attributes.type == cudaMemoryTypeDevice;
}

// Destructors call these, possibly during the shutdown of the driver, so errors are ignored.
void free(std::byte* memory) { cudaFree(memory); }
void free_pinned(std::byte* memory) { cudaFreeHost(memory); }

}  // namespace gpu

}  // namespace lockstep
