#include <cuda_runtime.h>

#include "cuda_device.hpp"
#include "lockstep/device/cuda_check.hpp"

namespace lockstep::gpu {

void begin_capture(void* stream) {
  // Thread-local mode: other threads may allocate and wait during the capture.
  check(cudaStreamBeginCapture(static_cast<cudaStream_t>(stream), cudaStreamCaptureModeThreadLocal),
        "starting to capture a stream");
}

void* end_capture(void* stream) {
  struct Captured {
    cudaGraph_t graph = nullptr;
    ~Captured() {
      if (graph != nullptr) cudaGraphDestroy(graph);
    }
  } captured;
  const cudaError_t ended = cudaStreamEndCapture(static_cast<cudaStream_t>(stream), &captured.graph);
  cudaGetLastError();  // clears the error of a failed capture, so that the next launch does not report it
  check(ended, "capturing a stream");
  cudaGraphExec_t graph = nullptr;
  // Without the flag, all nodes run at the priority of the launching stream, the nodes of NCCL's stream too.
  check(cudaGraphInstantiate(&graph, captured.graph, cudaGraphInstantiateFlagUseNodePriority),
        "instantiating a captured graph");
  return graph;
}

void launch_graph(void* executable, void* stream) {
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable), static_cast<cudaStream_t>(stream)),
        "launching a graph");
}

void destroy_graph(void* executable) {
  if (executable != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable));
}

}  // namespace lockstep::gpu
