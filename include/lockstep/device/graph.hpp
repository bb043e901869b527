#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/device/device.hpp"

namespace lockstep {

/// A CUDA graph: work of a GPU stream, captured once and launched by one call, any number of times.
///
///   if (graph.capture(stream, [&] { ... work for the stream ... })) graph.launch(stream);
///
/// During a capture no enqueued work runs. The capture includes another stream that waits for this stream, if this
/// stream waits for it before the capture ends. At each launch, kernels receive the arguments of the capture and read
/// memory at that time. So values that change between launches must lie in memory, at fixed addresses, and all memory
/// that kernels use must live as long as the graph.
class Graph {
 public:
  /// Captures the work that `enqueue` submits to the stream and replaces the previous capture. Returns false and holds
  /// no graph if `enqueue` throws or does something that a graph cannot contain, such as waiting for the stream or
  /// allocating; why() has the reason.
  /// errors   Error in a build without CUDA, or for a stream of the CPU
  bool capture(const Stream& stream, const std::function<void()>& enqueue);
  /// Whether launch() is possible. False once the scratch memory of the capturing thread (cuda_scratch.hpp) has moved,
  /// because the graph contains its address.
  bool ready() const;
  /// Enqueues the captured work. errors  Error unless ready(), or if the launch fails
  void launch(const Stream& stream) const;
  const std::string& why() const { return why_; }

 private:
  struct Destroy {
    void operator()(void* executable) const;
  };
  std::unique_ptr<void, Destroy> executable_;
  [[maybe_unused]] std::uint64_t scratch_moves_ = 0;  ///< at the time of the capture
  std::string why_;
};

}  // namespace lockstep
