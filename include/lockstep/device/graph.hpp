#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/device/device.hpp"

namespace lockstep {

/// A CUDA graph: work of a GPU stream, captured once and launched by one call.
///
///   if (graph.capture(stream, [&] { ... work for the stream ... })) graph.launch(stream);
///
/// During a capture no work of `enqueue` runs. This includes work on other streams that wait for this stream and that
/// this stream waits for before the capture ends. Kernels read memory when the graph runs, so host memory that they
/// read must keep its contents until then. Capturing the same work again, with other numbers and addresses, updates the
/// graph in place, which is cheaper than building a new one.
class Graph {
 public:
  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// Captures the work that `enqueue` gives to the stream and replaces the previous capture. Returns false and holds no
  /// graph if `enqueue` throws or does something that a graph cannot contain, such as waiting for the stream or
  /// allocating; why() has the reason.
  /// errors   Error in a build without CUDA, or for a stream of the CPU
  bool capture(const Stream& stream, const std::function<void()>& enqueue);
  /// Whether launch() is possible. False once any GPU-accessible memory has been freed since the capture, because the
  /// graph may contain its address.
  bool ready() const;
  /// Enqueues the captured work. May be called repeatedly. errors  Error unless ready(), or if the launch fails
  void launch(const Stream& stream) const;
  /// Discards the capture.
  void clear();
  const std::string& why() const { return why_; }

 private:
  struct Executable;
  std::unique_ptr<Executable> executable_;
  bool captured_ = false;
  std::uint64_t frees_ = 0;  ///< number of frees in this process at the time of the capture
  std::string why_;
};

}  // namespace lockstep
