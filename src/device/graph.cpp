#include "lockstep/device/graph.hpp"

#include "cuda_device.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/device/has_cuda.hpp"

namespace lockstep {

void Graph::Destroy::operator()([[maybe_unused]] void* executable) const {
  if constexpr (kHasCuda) gpu::destroy_graph(executable);
}

Graph::Graph() = default;
Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;

bool Graph::capture(const Stream& stream, const std::function<void()>& enqueue) {
  require(stream.device().is_cuda(), "capturing work on ", name(stream.device()), ": only GPUs support graphs");
  executable_.reset();
  why_.clear();
  if constexpr (kHasCuda) {
    gpu::begin_capture(stream.native());
    try {
      enqueue();
    } catch (const std::exception& e) {
      why_ = e.what();
    }
    try {
      executable_.reset(gpu::end_capture(stream.native()));
    } catch (const Error& e) {
      if (why_.empty()) why_ = e.what();
    }
    if (!why_.empty()) executable_.reset();
    scratch_moves_ = gpu::scratch_moves();
  }
  return executable_ != nullptr;
}

bool Graph::ready() const {
  if constexpr (kHasCuda) return executable_ != nullptr && scratch_moves_ == gpu::scratch_moves();
  return false;
}

void Graph::launch(const Stream& stream) const {
  require(ready(),
          "launching a graph: nothing was captured, or scratch memory has moved since; capture the work again");
  if constexpr (kHasCuda) gpu::launch_graph(executable_.get(), stream.native());
}

}  // namespace lockstep
