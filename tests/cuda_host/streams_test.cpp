#include "cuda_host/streams.hpp"

#include "lockstep/device/cuda_check.hpp"
#include "lockstep/device/cuda_launch.hpp"
#include "support/device_array.hpp"
#include "support/test.hpp"

namespace {

__global__ void add_kernel(int* y, const int* x, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] += x[i];
}

/// A separate stream; streams run late while it lives, if requested.
struct OwnStream {
  explicit OwnStream(bool late = false) {
    cuda_host::run_streams_late(late);
    gpu::check(cudaSetDevice(0), "choosing a device");
    gpu::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  }
  ~OwnStream() {
    cudaStreamDestroy(stream);
    cuda_host::run_streams_late(false);
  }
  cudaError_t launch(void (*kernel)(int*, const int*, int), int* y, const int* x, int n) const {
    cudaLaunchConfig_t config{.gridDim = (static_cast<unsigned>(n) + 31) / 32, .blockDim = 32, .stream = stream};
    return cudaLaunchKernelEx(&config, kernel, y, x, n);
  }
  cudaStream_t stream;
};

/// A page-locked host array that devices can read.
struct PinnedInts {
  explicit PinnedInts(int count) : memory(Buffer::pinned(to_size(count) * sizeof(int))) {}
  int* data() const { return reinterpret_cast<int*>(memory.data()); }
  Buffer memory;
};

}  // namespace

TEST_SUITE("cuda_host.streams") {
  TEST_CASE("a late stream reads its inputs when it runs, not when work is submitted") {
    for (const bool late : {false, true}) {
      CAPTURE(late);
      const DeviceArray<int> y(std::vector<int>(1));
      const PinnedInts x(1);
      const OwnStream s(late);
      x.data()[0] = 5;
      CHECK(s.launch(add_kernel, y.data(), x.data(), 1) == cudaSuccess);
      x.data()[0] = 7;  // the kernel may not have run yet
      CHECK(cudaStreamSynchronize(s.stream) == cudaSuccess);
      CHECK(y.read()[0] == (late ? 7 : 5));
    }
  }

  TEST_CASE("a late stream has no results before the host has waited") {
    const PinnedInts out(4);
    std::fill_n(out.data(), 4, -1);
    const DeviceArray<int> x(std::vector<int>{1, 2, 3, 4});
    const OwnStream s(true);
    CHECK(cudaMemcpyAsync(out.data(), x.data(), 16, cudaMemcpyDeviceToHost, s.stream) == cudaSuccess);
    CHECK(out.data()[3] == -1);
    CHECK(cudaStreamSynchronize(s.stream) == cudaSuccess);
    CHECK(out.data()[3] == 4);
  }

  TEST_CASE("with late streams, copies of pageable host memory are staged on submission, as in CUDA") {
    const DeviceArray<int> y(1);
    const OwnStream s(true);
    int value = 3, back = 0;
    CHECK(cudaMemcpyAsync(y.data(), &value, sizeof value, cudaMemcpyHostToDevice, s.stream) == cudaSuccess);
    value = 4;
    CHECK(cudaMemcpyAsync(&back, y.data(), sizeof back, cudaMemcpyDeviceToHost, s.stream) == cudaSuccess);
    CHECK(back == 3);
  }

  TEST_CASE("a stream that waits for an event makes the other one run first") {
    const DeviceArray<int> y(std::vector<int>{0}), one(std::vector<int>{1});
    const PinnedInts out(1);
    const OwnStream first(true), second(true);
    cudaEvent_t event;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
    CHECK(first.launch(add_kernel, y.data(), one.data(), 1) == cudaSuccess);
    CHECK(cudaEventRecord(event, first.stream) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(second.stream, event) == cudaSuccess);
    CHECK(cudaMemcpyAsync(out.data(), y.data(), 4, cudaMemcpyDefault, second.stream) == cudaSuccess);
    CHECK(cudaStreamSynchronize(second.stream) == cudaSuccess);
    CHECK(out.data()[0] == 1);
    CHECK(cudaEventQuery(event) == cudaSuccess);
    CHECK(cudaEventDestroy(event) == cudaSuccess);
  }

  TEST_CASE("memory that two streams use without an event between them is an error if one writes") {
    const DeviceArray<int> y(std::vector<int>(1000)), one(std::vector<int>(1000, 1));
    const OwnStream first, second;
    const auto complaint = [](cudaError_t error) {
      return error == cudaSuccess ? std::string() : std::string(cudaGetErrorString(error));
    };
    CHECK(first.launch(add_kernel, y.data(), one.data(), 1000) == cudaSuccess);
    const std::string found = complaint(second.launch(add_kernel, y.data(), one.data(), 1000));
    CAPTURE(found);
    CHECK(found.find("kernel add_kernel on stream ") == 0);
    CHECK(found.find("writes byte 0 of the 4032 bytes") != std::string::npos);
    CHECK(found.find(", which kernel add_kernel on stream ") != std::string::npos);
    // Two reads need no order, nor do different bytes.
    const DeviceArray<int> z(std::vector<int>(1000));
    CHECK(complaint(second.launch(add_kernel, z.data(), one.data(), 1000)) == "");
    CHECK(complaint(cudaMemsetAsync(y.data() + 500, 0, 16, second.stream)) == "");
    CHECK(complaint(cudaMemsetAsync(y.data(), 0, 16, second.stream)).find("cudaMemset on stream") == 0);
    cudaEvent_t event;
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    CHECK(complaint(cudaEventRecord(event, first.stream)) == "");
    CHECK(complaint(cudaStreamWaitEvent(second.stream, event)) == "");
    CHECK(complaint(second.launch(add_kernel, y.data(), one.data(), 1000)) == "");
    CHECK(complaint(first.launch(add_kernel, y.data(), one.data(), 1000)) != "");  // an event orders one way only
    CHECK(complaint(cudaStreamSynchronize(second.stream)) == "");
    CHECK(complaint(first.launch(add_kernel, y.data(), one.data(), 1000)) == "");
    // When the first stream uses a range again, only those bytes conflict with the second stream.
    const DeviceArray<int> w(std::vector<int>(1000));
    CHECK(complaint(cudaMemsetAsync(w.data(), 0, 4000, first.stream)) == "");
    CHECK(complaint(cudaEventRecord(event, first.stream)) == "");
    CHECK(complaint(cudaStreamWaitEvent(second.stream, event)) == "");
    CHECK(complaint(cudaMemsetAsync(w.data(), 0, 400, first.stream)) == "");
    CHECK(complaint(cudaMemsetAsync(w.data() + 100, 0, 3600, second.stream)) == "");
    CHECK(complaint(cudaMemsetAsync(w.data() + 99, 0, 8, second.stream)).find("byte 396 of") != std::string::npos);
    // The default stream is not ordered with non-blocking streams.
    CHECK(complaint(cudaMemsetAsync(y.data(), 0, 4000, nullptr)).find("the default stream of cuda:0") !=
          std::string::npos);
    cudaEventDestroy(event);
    cudaGetLastError();
  }

  TEST_CASE("a kernel's fault is reported once: by its launch, or by the wait for it") {
    const DeviceArray<int> y(1024);
    for (const bool late : {false, true}) {
      CAPTURE(late);
      const OwnStream s(late);
      const auto broken = [](int* out, const int*, int n) { out[n] = 1; };
      const cudaError_t launched = s.launch(broken, y.data(), nullptr, 1024);
      const cudaError_t waited = cudaStreamSynchronize(s.stream);
      CHECK((late ? waited : launched) == cudaErrorIllegalAddress);
      CHECK((late ? launched : waited) == cudaSuccess);
      CHECK(cudaStreamSynchronize(s.stream) == cudaSuccess);
    }
    cudaGetLastError();
  }
}

TEST_SUITE("cuda_host.graphs") {
  TEST_CASE("captured work runs at each launch of the graph, on all streams that joined") {
    for (const bool late : {false, true}) {
      const DeviceArray<int> y(std::vector<int>(3)), x(std::vector<int>{1, 2, 3});
      const OwnStream s(late), other(late);
      cudaEvent_t fork, join;
      cudaEventCreateWithFlags(&fork, cudaEventDisableTiming);
      cudaEventCreateWithFlags(&join, cudaEventDisableTiming);
      CHECK(cudaStreamBeginCapture(s.stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
      CHECK(s.launch(add_kernel, y.data(), x.data(), 3) == cudaSuccess);
      CHECK(cudaEventRecord(fork, s.stream) == cudaSuccess);
      CHECK(cudaStreamWaitEvent(other.stream, fork) == cudaSuccess);
      CHECK(other.launch(add_kernel, y.data(), x.data(), 2) == cudaSuccess);
      CHECK(cudaEventRecord(join, other.stream) == cudaSuccess);
      CHECK(cudaStreamWaitEvent(s.stream, join) == cudaSuccess);
      cudaStreamCaptureStatus status;
      CHECK(cudaStreamIsCapturing(other.stream, &status) == cudaSuccess);
      CHECK(status == cudaStreamCaptureStatusActive);
      cudaGraph_t graph;
      CHECK(cudaStreamEndCapture(s.stream, &graph) == cudaSuccess);
      CHECK(y.read() == std::vector<int>{0, 0, 0});
      cudaGraphExec_t executable;
      CHECK(cudaGraphInstantiate(&executable, graph) == cudaSuccess);
      CHECK(cudaGraphDestroy(graph) == cudaSuccess);
      for (int i = 0; i < 3; ++i) CHECK(cudaGraphLaunch(executable, s.stream) == cudaSuccess);
      CHECK(cudaStreamSynchronize(s.stream) == cudaSuccess);
      CHECK(y.read() == std::vector<int>{6, 12, 9});
      CHECK(cudaGraphExecDestroy(executable) == cudaSuccess);
      cudaEventDestroy(fork);
      cudaEventDestroy(join);
    }
  }

  TEST_CASE("calls that a graph cannot contain end the capture") {
    const DeviceArray<int> y(std::vector<int>(1)), x(std::vector<int>{1});
    const OwnStream s, other;
    cudaGraph_t graph;
    const auto begin = [&] {
      REQUIRE(cudaStreamBeginCapture(s.stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    };
    begin();
    CHECK(cudaStreamSynchronize(s.stream) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(s.stream, &graph) == cudaErrorStreamCaptureInvalidated);
    begin();
    void* memory = nullptr;
    CHECK(cudaMalloc(&memory, 16) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(s.stream, &graph) == cudaErrorStreamCaptureInvalidated);
    begin();
    cudaEvent_t event;
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    CHECK(cudaEventRecord(event, s.stream) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(other.stream, event) == cudaSuccess);
    CHECK(other.launch(add_kernel, y.data(), x.data(), 1) == cudaSuccess);
    CHECK(cudaStreamEndCapture(s.stream, &graph) == cudaErrorStreamCaptureUnjoined);
    cudaEventDestroy(event);
    CHECK(cudaStreamEndCapture(s.stream, &graph) == cudaErrorIllegalState);
    begin();
    int value = 0;
    CHECK(cudaMemcpyAsync(&value, y.data(), 4, cudaMemcpyDefault, s.stream) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(s.stream, &graph) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(s.launch(add_kernel, y.data(), x.data(), 1) == cudaSuccess);
    CHECK(cudaStreamSynchronize(s.stream) == cudaSuccess);
    CHECK(y.read()[0] == 1);
  }
}
