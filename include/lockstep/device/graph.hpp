#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/device/device.hpp"

namespace lockstep {

/// Work of a GPU's stream, put down once and given to it by one call: a CUDA graph.
///
///   if (graph.capture(stream, [&] { ... what gives work to the stream ... })) graph.launch(stream);
///
/// While `give` runs nothing of what it gives to the stream is carried out, nor of what it gives to other streams that wait
/// for this one and that this one waits for in the end. Kernels read memory when the graph runs: host memory that they
/// read must keep its contents until then. Another capture of the same work, with other numbers and addresses, changes the
/// graph in place, which costs less than making it anew.
class Graph {
 public:
  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// Keeps what `give` gives to the stream instead of what was kept before. False, and nothing is kept, when `give` did what
  /// has no place in a graph, such as waiting for the stream or allocating, or threw: why() says what it was.
  /// errors  Error in a build without CUDA, or for a stream of the CPU
  bool capture(const Stream& stream, const std::function<void()>& give);
  /// Whether there is something to launch: not once any memory that GPUs can read has been freed since the capture, as the
  /// graph may know its address.
  bool ready() const;
  /// Gives to the stream what was kept, as often as wanted. errors  Error unless ready(), or when the GPU refuses
  void launch(const Stream& stream) const;
  /// Forgets what was kept.
  void clear();
  const std::string& why() const { return why_; }

 private:
  struct Executable;
  std::unique_ptr<Executable> executable_;
  bool kept_ = false;
  std::uint64_t frees_ = 0;  ///< of the process, at the capture
  std::string why_;
};

}  // namespace lockstep
