#include "lockstep/device/graph.hpp"

#include "cuda_device.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/device/has_cuda.hpp"

namespace lockstep {

struct Graph::Executable {
  Executable() = default;
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;
  ~Executable() {
    if constexpr (kHasCuda) gpu::destroy_graph(handle);
  }
  void* handle = nullptr;
};

Graph::Graph() : executable_(std::make_unique<Executable>()) {}
Graph::~Graph() = default;

bool Graph::capture(const Stream& stream, const std::function<void()>& enqueue) {
  require(stream.device().is_cuda(), "capturing work on ", name(stream.device()), ": only GPUs support graphs");
  clear();
  if constexpr (kHasCuda) {
    why_.clear();
    gpu::begin_capture(stream.native());
    try {
      enqueue();
    } catch (const std::exception& e) {
      why_ = e.what();
    }
    try {
      gpu::end_capture(stream.native(), executable_->handle);
    } catch (const Error& e) {
      if (why_.empty()) why_ = e.what();
    }
    captured_ = why_.empty();
    frees_ = gpu::frees();
  }
  return captured_;
}

bool Graph::ready() const {
  if constexpr (kHasCuda) return captured_ && frees_ == gpu::frees();
  return false;
}

void Graph::launch(const Stream& stream) const {
  require(ready(), "launching a graph: nothing was captured, or GPU memory was freed since; capture the work again");
  if constexpr (kHasCuda) gpu::launch_graph(executable_->handle, stream.native());
}

void Graph::clear() { captured_ = false; }

}  // namespace lockstep
