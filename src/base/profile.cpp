#include "lockstep/base/profile.hpp"

#include <algorithm>
#include <chrono>
#include <list>
#include <memory>
#include <mutex>
#include <utility>

namespace lockstep::profile {

/// The lane of a thread. Only this thread adds events. The memory is never freed, because a span of another thread may
/// still be open when take() copies the events.
struct Span::Buffer {
  int rank = 0, number = 0;
  std::string name;
  std::unique_ptr<Event[]> events;
  std::size_t capacity = 0;
  std::atomic<std::size_t> used{0};
  std::atomic<std::uint64_t> lost{0};
  bool owned = false;  ///< by a living thread
};

struct Recorder {
  using Buffer = Span::Buffer;
  std::mutex mutex;  ///< of the list
  std::list<Buffer> lanes;
  static Recorder& instance() {
    static auto* recorder = new Recorder;  // threads may outlive static objects
    return *recorder;
  }
  /// Reuses the lane of a thread that has ended, or adds one.
  Buffer* lane(int rank, int number, const std::string& name, std::size_t capacity) {
    const std::lock_guard lock(mutex);
    auto found = std::ranges::find_if(lanes, [&](const Buffer& b) {
      return !b.owned && b.rank == rank && b.number == number && b.capacity == capacity;
    });
    if (found == lanes.end()) {
      found = lanes.emplace(lanes.end());
      found->events = std::make_unique_for_overwrite<Event[]>(capacity);
      found->capacity = capacity;
    }
    found->rank = rank;
    found->number = number;
    found->name = name;
    found->owned = true;
    return &*found;
  }
};

namespace {

constexpr std::size_t kHelperCapacity = 4096;  // a helper thread has few spans
constexpr int kFirstHelper = 1000;             // above the numbers of the threads that train

std::atomic<void (*)(const char*)> mirror_begin = nullptr;
std::atomic<void (*)()> mirror_end = nullptr;

struct Owner {
  Recorder::Buffer* lane = nullptr;
  void take(Recorder::Buffer* next) {
    if (lane != nullptr) {
      const std::lock_guard lock(Recorder::instance().mutex);
      lane->owned = false;
    }
    lane = next;
  }
  ~Owner() { take(nullptr); }
};
thread_local Owner owner;
thread_local Span* innermost = nullptr;
thread_local int helper_rank = 0;
thread_local const char* helper_name = "helper";

}  // namespace

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Span::begin(const char* name, Kind kind, const char* detail, std::uint32_t number) {
  if (owner.lane == nullptr)
    owner.take(Recorder::instance().lane(helper_rank, kFirstHelper, helper_name, kHelperCapacity));
  lane_ = owner.lane;
  outer_ = innermost;
  innermost = this;
  event_.name = name;
  event_.kind = kind;
  event_.number = number;
  event_.flops = 0;
  const std::size_t length = detail == nullptr ? 0 : ::strnlen(detail, Event::kDetail);
  std::copy_n(detail, length, event_.detail);
  if (length < Event::kDetail) event_.detail[length] = '\0';
  if (const auto mirror = mirror_begin.load()) mirror(name);
  event_.begin_ns = now_ns();
}

void Span::finish() {
  event_.end_ns = now_ns();
  if (const auto mirror = mirror_end.load()) mirror();
  innermost = outer_;
  Buffer& lane = *std::exchange(lane_, nullptr);
  std::size_t at = lane.used.load(std::memory_order_relaxed);
  if (at == lane.capacity) {
    lane.lost.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  lane.events[at] = event_;
  // Fails if take() has emptied the lane meanwhile. Then this span ended after the recording and is dropped.
  lane.used.compare_exchange_strong(at, at + 1, std::memory_order_release, std::memory_order_relaxed);
}

void Span::add_to_innermost(double flops) {
  if (innermost != nullptr) innermost->event_.flops += static_cast<float>(flops);
}

void enter(int rank, int number, std::size_t capacity) {
  owner.take(Recorder::instance().lane(rank, number, "thread " + std::to_string(number), capacity));
}
void name_helper(int rank, const char* name) {
  helper_rank = rank;
  helper_name = name;
}

void start() { detail::recorders.fetch_add(1, std::memory_order_relaxed); }
void stop() { detail::recorders.fetch_sub(1, std::memory_order_relaxed); }

std::vector<Lane> take(int rank) {
  std::vector<Lane> taken;
  Recorder& all = Recorder::instance();
  const std::lock_guard lock(all.mutex);
  for (Recorder::Buffer& lane : all.lanes) {
    const std::size_t used = lane.used.load(std::memory_order_acquire);
    if (lane.rank != rank || used == 0) continue;
    int number = lane.number;  // equal for helpers that lived at the same time
    while (std::ranges::any_of(taken, [&](const Lane& other) { return other.number == number; })) ++number;
    taken.push_back({rank, number, lane.name, {lane.events.get(), lane.events.get() + used}, lane.lost.load()});
    lane.used.store(0, std::memory_order_relaxed);
    lane.lost.store(0, std::memory_order_relaxed);
  }
  return taken;
}

void set_mirror(void (*begin)(const char*), void (*end)()) {
  mirror_begin = begin;
  mirror_end = end;
}

}  // namespace lockstep::profile
