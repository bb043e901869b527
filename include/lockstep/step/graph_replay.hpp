#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "lockstep/device/device.hpp"
#include "lockstep/device/graph.hpp"
#include "lockstep/step/sharded_step.hpp"

namespace lockstep {

/// An arena of pinned memory: the host arena of a GPU arena.
class PinnedArena {
 public:
  explicit PinnedArena(Device device, std::size_t size_bytes = 0) : both_(device, Buffer::kAlignment) {
    get().allocate(size_bytes);
    get().reset();  // one block of this size
  }
  Arena& get() { return both_.host(); }

 private:
  Arena both_;
};

/// Repeats the steps of a GPU as CUDA graphs. A step is fresh, then known, then a graph:
///
///   fresh   no step has had its key. It runs call by call: its memory grows, and libraries load their kernels.
///   known   a step with its key has run. It is captured, apart for each half of the double-buffered host memory.
///   graph   its half has a graph with its key. It is one launch.
///
/// Graphs hold addresses. They are discarded when the memory of a step has moved; then their steps are known again.
///
/// If the steps of several ranks contain collectives of NCCL, a step is a graph on all ranks or on none. Equal keys on
/// one rank must mean equal keys on every rank. Then ranks decide alike as long as none has lost its graphs, and they
/// agree (a collective call) only where the memory of a rank may have moved since they last did.
class GraphReplay {
 public:
  /// All that the launches of a step depend on.
  using Key = std::vector<std::int64_t>;
  struct Options {
    Graphs graphs = Graphs::automatic;
    std::size_t halves = 2;
    std::size_t most = 8;                    ///< graphs of a half; a new one replaces the one unused for longest
    std::function<void()> wait;              ///< waits for all work on the stream
    std::function<bool(bool mine)> agree{};  ///< whether all ranks say true; collective. Empty: no other ranks
  };
  /// The work of a step.
  struct Work {
    /// Runs it, after `known`: whether a step with this key has run before.
    std::function<void(bool known)> call_by_call;
    /// Enqueues it in a capture. `host` keeps what it writes besides the samples, such as constants; null: nothing.
    std::function<void(Arena* host)> enqueue;
    std::size_t host_bytes = 0;  ///< that enqueue() takes from `host`
    bool repeats = true;         ///< false: its launches depend on more than its key, so it is no graph
  };

  GraphReplay(const Stream& stream, Options options);
  /// errors  Error (usage): graphs = on, and steps cannot be captured
  void run(std::size_t half, const Key& key, const Work& work);
  /// Call it when the memory of steps has moved, or may have moved on this rank alone.
  void memory_moved();
  void memory_may_have_moved() { unsure_ = true; }
  /// Destroys the graphs. Nothing may run on the stream.
  void destroy();

 private:
  struct Captured {
    Key key;
    std::optional<PinnedArena> host;
    Graph graph;
  };
  /// Discards all graphs on all ranks if any rank has lost its own.
  void agree_on_loss();
  /// The half's graph of this key, or null.
  const Graph* find(std::size_t half, const Key& key);
  /// Captures the step, on all ranks; null on all ranks if one of them cannot.
  const Graph* capture(std::size_t half, const Key& key, const Work& work);

  const Stream& stream_;
  Options options_;
  std::vector<std::vector<Captured>> halves_;  ///< the last graph of each is the last one used
  std::vector<Key> known_;                     ///< oldest first
  bool lost_ = false;                          ///< graphs of this rank were discarded since the last step
  bool unsure_ = true;                         ///< whether another rank may have lost its graphs
  bool logged_ = false;
  int failures_ = 0;  ///< captures in a row
};

}  // namespace lockstep
