#include <cuda_runtime.h>

#include <utility>

#include "cuda_device.hpp"
#include "lockstep/device/cuda_check.hpp"

namespace lockstep::gpu {

void begin_capture(void* stream) {
  // Of this thread alone: others may allocate and wait meanwhile.
  check(cudaStreamBeginCapture(static_cast<cudaStream_t>(stream), cudaStreamCaptureModeThreadLocal),
        "beginning to capture a stream");
}

void end_capture(void* stream, void*& executable) {
  struct Captured {
    cudaGraph_t graph = nullptr;
    ~Captured() {
      if (graph != nullptr) cudaGraphDestroy(graph);
    }
  } captured;
  const cudaError_t ended = cudaStreamEndCapture(static_cast<cudaStream_t>(stream), &captured.graph);
  cudaGetLastError();  // what spoilt the capture must not be found again by the next launch
  check(ended, "capturing a stream");
  auto graph = static_cast<cudaGraphExec_t>(executable);
  if (graph != nullptr) {
    cudaGraphExecUpdateResultInfo result;
    if (cudaGraphExecUpdate(graph, captured.graph, &result) == cudaSuccess) return;
    cudaGetLastError();  // other nodes, or other edges: a new one
    destroy_graph(std::exchange(executable, nullptr));
  }
  check(cudaGraphInstantiate(&graph, captured.graph, 0), "making a graph of a captured stream");
  executable = graph;
}

void launch_graph(void* executable, void* stream) {
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable), static_cast<cudaStream_t>(stream)),
        "starting a graph");
}

void destroy_graph(void* executable) {
  if (executable != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable));
}

}  // namespace lockstep::gpu
