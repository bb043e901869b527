#include "lockstep/step/graph_replay.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/profile.hpp"

namespace lockstep {

GraphReplay::GraphReplay(const Stream& stream, Options options)
    : stream_(stream), options_(std::move(options)), halves_(options_.halves) {}

void GraphReplay::run(std::size_t half, const Key& key, const Work& work) {
  const bool known = std::ranges::find(known_, key) != known_.end();
  if (options_.graphs != Graphs::off && work.repeats) {
    unsure_ = unsure_ || !known;  // a fresh step may have enlarged the memory
    agree_on_loss();
    const Graph* graph = find(half, key);
    if (graph == nullptr && known) graph = capture(half, key, work);
    if (graph != nullptr) {
      const profile::Span span("launch of the graph", profile::Kind::phase);
      graph->launch(stream_);
      if (!std::exchange(logged_, true)) log::info("steps run on the GPU as graphs");
      return;
    }
  }
  work.call_by_call(known);
  unsure_ = true;
  if (known) return;
  constexpr std::size_t kMostKnown = 64;
  if (known_.size() == kMostKnown) known_.erase(known_.begin());
  known_.push_back(key);
}

void GraphReplay::agree_on_loss() {
  bool lost = std::exchange(lost_, false);
  for (const auto& half : halves_)
    lost = lost || std::ranges::any_of(half, [](const Captured& captured) { return !captured.graph.ready(); });
  if (options_.agree) {
    require(unsure_ || !lost, "repeating a step: the memory of this rank has moved since its capture");
    if (unsure_) lost = !options_.agree(!lost);
  }
  unsure_ = false;
  if (lost) memory_moved();
  lost_ = false;
}

const Graph* GraphReplay::find(std::size_t half, const Key& key) {
  std::vector<Captured>& graphs = halves_[half];
  const auto found = std::ranges::find(graphs, key, &Captured::key);
  if (found == graphs.end()) return nullptr;
  std::rotate(found, found + 1, graphs.end());
  return &graphs.back().graph;
}

const Graph* GraphReplay::capture(std::size_t half, const Key& key, const Work& work) {
  const profile::Span span("capture of a graph", profile::Kind::phase);
  std::vector<Captured>& graphs = halves_[half];
  if (graphs.size() == options_.most) graphs.erase(graphs.begin());
  Captured& made = graphs.emplace_back(Captured{.key = key, .host = {}, .graph = {}});
  if (work.host_bytes > 0) made.host.emplace(stream_.device(), work.host_bytes);
  const bool captured = made.graph.capture(stream_, [&] { work.enqueue(made.host ? &made.host->get() : nullptr); });
  const std::string why = captured ? "see the log of another rank" : made.graph.why();
  if (options_.agree ? options_.agree(captured) : captured) {
    failures_ = 0;
    return &made.graph;
  }
  graphs.pop_back();
  constexpr int kEnough = 8;
  if (++failures_ < kEnough) return nullptr;
  require(options_.graphs != Graphs::on, "option run.graphs = on: a step cannot be captured in a graph: ", why,
          "; use auto");
  log::info("steps run without CUDA graphs: a step cannot be captured: ", why);
  options_.graphs = Graphs::off;
  return nullptr;
}

void GraphReplay::memory_moved() {
  options_.wait();
  destroy();
  lost_ = true;
}

void GraphReplay::destroy() {
  for (auto& half : halves_) half.clear();
}

}  // namespace lockstep
