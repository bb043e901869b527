#include "ordering.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include "error.hpp"
#include "memory.hpp"
#include "symbols.hpp"

namespace cuda_host {

namespace {

/// The latest use of a range by a stream.
struct Noted {
  std::size_t size = 0;
  std::uint64_t tick = 0;
  const void* kernel = nullptr;
  const char* name = "";
};
/// Keyed by the begin of the range and whether it was written.
using OfStream = std::map<std::pair<const std::byte*, bool>, Noted>;

struct Table {
  std::mutex mutex;
  std::map<const std::byte*, std::map<int, OfStream>> allocations;  // by begin of the allocation, then by stream
};
Table& table() {
  static auto* all = new Table;
  return *all;
}

std::string name_of(const void* kernel, const char* name) {
  return kernel ? "kernel " + function_name(kernel) : std::string(name);
}
std::string name_of(int stream) {
  return stream < 0 ? text("the default stream of cuda:", -1 - stream) : text("stream ", stream);
}

void check(const OfStream& theirs, int other, std::uint64_t seen, int stream, const Use& use, const Uses& uses) {
  const auto* begin = static_cast<const std::byte*>(use.begin);
  for (const auto& [key, noted] : theirs) {
    const auto& [at, written] = key;
    if (at >= begin + use.size) break;
    if (at + noted.size <= begin || noted.tick <= seen || !(written || use.writes)) continue;
    throw Failure{cudaErrorIllegalState,
                  text(name_of(uses.kernel, uses.name), " on ", name_of(stream), use.writes ? " writes " : " reads ",
                       describe_address(std::max(at, begin)), ", which ", name_of(noted.kernel, noted.name), " on ",
                       name_of(other), written ? " writes" : " reads", ": no event and no wait orders them")};
  }
}

}  // namespace

void join(Clock& into, const Clock& other) {
  for (const auto& [stream, tick] : other) into[stream] = std::max(into[stream], tick);
}

Clock& host_clock() {
  thread_local Clock clock;
  return clock;
}

void note_uses(int stream, Clock& clock, const Uses& uses) {
  join(clock, host_clock());
  const std::uint64_t tick = ++clock[stream];
  Table& t = table();
  for (const Use& use : uses.ranges) {
    const auto allocation = find_allocation(use.begin);
    if (!allocation || allocation->freed || use.size == 0) continue;
    const std::lock_guard lock(t.mutex);
    auto& streams = t.allocations[allocation->begin];
    for (const auto& [other, theirs] : streams)
      if (other != stream) check(theirs, other, clock[other], stream, use, uses);
    OfStream& mine = streams[stream];
    const auto* begin = static_cast<const std::byte*>(use.begin);
    const Noted before = std::exchange(mine[{begin, use.writes}], {use.size, tick, uses.kernel, uses.name});
    if (before.size <= use.size) continue;
    // Only earlier work used the bytes after that.
    Noted& rest = mine[{begin + use.size, use.writes}];
    if (rest.tick <= before.tick)
      rest = {std::max(rest.size, before.size - use.size), before.tick, before.kernel, before.name};
  }
}

void forget_uses(int stream) {
  Table& t = table();
  const std::lock_guard lock(t.mutex);
  for (auto& [begin, streams] : t.allocations) streams.erase(stream);
}

void forget_memory(const void* begin) {
  Table& t = table();
  const std::lock_guard lock(t.mutex);
  t.allocations.erase(static_cast<const std::byte*>(begin));
}

}  // namespace cuda_host
