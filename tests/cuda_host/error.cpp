#include "error.hpp"

#include <atomic>

namespace {
std::atomic<const cuda_host::Failure*> lost = nullptr;
thread_local cudaError_t latest = cudaSuccess;  // since the last cudaGetLastError
// Without a destructor: those of other objects of the thread may still call the runtime.
thread_local cudaError_t described = cudaSuccess;
thread_local char description[4096];

struct Name {
  cudaError_t error;
  const char *name, *meaning;
};
#define NAMED(error) error, #error
constexpr Name kNames[] = {
    {NAMED(cudaSuccess), "no error"},
    {NAMED(cudaErrorInvalidValue), "invalid argument"},
    {NAMED(cudaErrorMemoryAllocation), "out of memory"},
    {NAMED(cudaErrorInitializationError), "initialization error"},
    {NAMED(cudaErrorInvalidConfiguration), "invalid configuration argument"},
    {NAMED(cudaErrorInvalidMemcpyDirection), "invalid copy direction for memcpy"},
    {NAMED(cudaErrorInsufficientDriver), "CUDA driver version is insufficient for CUDA runtime version"},
    {NAMED(cudaErrorNoKernelImageForDevice), "no kernel image is available for execution on the device"},
    {NAMED(cudaErrorUnsupportedPtxVersion), "the provided PTX was compiled with an unsupported toolchain."},
    {NAMED(cudaErrorNoDevice), "no CUDA-capable device is detected"},
    {NAMED(cudaErrorInvalidDevice), "invalid device ordinal"},
    {NAMED(cudaErrorInvalidResourceHandle), "invalid resource handle"},
    {NAMED(cudaErrorIllegalState), "the operation cannot be performed in the present state"},
    {NAMED(cudaErrorNotReady), "device not ready"},
    {NAMED(cudaErrorIllegalAddress), "an illegal memory access was encountered"},
    {NAMED(cudaErrorMisalignedAddress), "misaligned address"},
    {NAMED(cudaErrorLaunchFailure), "unspecified launch failure"},
    {NAMED(cudaErrorCooperativeLaunchTooLarge), "too many blocks in cooperative launch"},
    {NAMED(cudaErrorNotSupported), "operation not supported"},
    {NAMED(cudaErrorStreamCaptureUnsupported), "operation not permitted when stream is capturing"},
    {NAMED(cudaErrorStreamCaptureInvalidated), "operation failed due to a previous error during capture"},
    {NAMED(cudaErrorStreamCaptureUnmatched), "operation on a stream that did not begin the capture"},
    {NAMED(cudaErrorStreamCaptureUnjoined), "capturing stream has unjoined work"},
    {NAMED(cudaErrorUnknown), "unknown error"},
};
#undef NAMED
const Name& name_of(cudaError_t error) {
  for (const Name& name : kNames)
    if (name.error == error) return name;
  return kNames[std::size(kNames) - 1];
}
}  // namespace

namespace cuda_host {

cudaError_t note(const Failure& failure) {
  description[failure.message.copy(description, sizeof description - 1)] = '\0';
  described = failure.error;
  return latest = failure.error;
}

const char* noted(cudaError_t error) { return described == error && description[0] != '\0' ? description : nullptr; }

void lose_devices(const Failure& failure) { lost = new Failure(failure); }
void require_devices() {
  if (const Failure* failure = lost) throw Failure(*failure);
}

}  // namespace cuda_host

const char* cudaGetErrorString(cudaError_t error) {
  const char* full = error == cudaSuccess ? nullptr : cuda_host::noted(error);
  return full ? full : name_of(error).meaning;
}
const char* cudaGetErrorName(cudaError_t error) { return name_of(error).name; }
cudaError_t cudaGetLastError() { return std::exchange(latest, cudaSuccess); }
