#include <cuda_runtime.h>

#include "cuda_device.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/device/cuda_check.hpp"
#include "lockstep/device/graph.hpp"

namespace lockstep {

namespace {
/// Ends the capture and returns its graph, ready for launches.
/// errors   Error if the work cannot be captured; the stream is usable again in any case
cudaGraphExec_t end_capture(cudaStream_t stream) {
  struct Captured {
    cudaGraph_t graph = nullptr;
    ~Captured() {
      if (graph != nullptr) cudaGraphDestroy(graph);
    }
  } captured;
  const cudaError_t ended = cudaStreamEndCapture(stream, &captured.graph);
  cudaGetLastError();  // clears the error of a failed capture, so that the next launch does not report it
  gpu::check(ended, "capturing a stream");
  cudaGraphExec_t graph = nullptr;
  // Without the flag, all nodes run at the priority of the launching stream, the nodes of NCCL's stream too.
  gpu::check(cudaGraphInstantiate(&graph, captured.graph, cudaGraphInstantiateFlagUseNodePriority),
             "instantiating a captured graph");
  return graph;
}
}  // namespace

void Graph::Destroy::operator()(void* executable) const {
  cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable));
}

bool Graph::capture(const Stream& stream, const std::function<void()>& enqueue) {
  require(stream.device().is_cuda(), "capturing work on ", name(stream.device()), ": only GPUs support graphs");
  executable_.reset();
  why_.clear();
  const auto native = static_cast<cudaStream_t>(stream.native());
  // Thread-local mode: other threads may allocate and wait during the capture.
  gpu::check(cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal), "starting to capture a stream");
  try {
    enqueue();
  } catch (const std::exception& e) {
    why_ = e.what();
  }
  try {
    executable_.reset(end_capture(native));
  } catch (const Error& e) {
    if (why_.empty()) why_ = e.what();
  }
  if (!why_.empty()) executable_.reset();
  scratch_moves_ = gpu::scratch_moves();
  return executable_ != nullptr;
}

bool Graph::ready() const { return executable_ != nullptr && scratch_moves_ == gpu::scratch_moves(); }

void Graph::launch(const Stream& stream) const {
  require(ready(),
          "launching a graph: nothing was captured, or scratch memory has moved since; capture the work again");
  gpu::check(
      cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable_.get()), static_cast<cudaStream_t>(stream.native())),
      "launching a graph");
}

}  // namespace lockstep
