#pragma once
#include <sched.h>
#include <unistd.h>

#include <cstdint>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/comm/world.hpp"
#include "progress.hpp"
#include "status.hpp"

namespace lockstep {

/// What the communicators of a process share: where this rank reports to, and how it waits.
struct CommContext {
  explicit CommContext(RankBoard* board, const NodeBoard* node = nullptr) : status(board), node_board(node) {}
  /// Once the job is being ended this rank waits for its end: a rank that was stopped and now runs again must not complete the
  /// collective that the others were told to give up.
  void stay_if_ending() const {
    if (node_board == nullptr) return;
    while (node_board->ending.load(std::memory_order_relaxed) != 0) pause();
  }
  Status status;
  const NodeBoard* node_board;
  WorldOptions options;
  Progress* progress = nullptr;    ///< for started collectives; none without threads in MPI
  bool crowded = false;            ///< more ranks than processors on this node: waiting must not cost a processor
  std::vector<std::string> hosts;  ///< of each rank
  std::function<void()>
      while_waiting;  ///< called now and then by a waiting rank, when the watchdog cannot use MPI from its own thread
};

/// One waiting: spins for the time in which a quick collective ends, then gives the processor to whoever wants it, and
/// at last sleeps.
class Backoff {
 public:
  explicit Backoff(const CommContext& context) : context_(context), spinning_(!context.crowded) {}

  /// Between two looks at what is waited for. False while still spinning: the caller may spare itself costly looks.
  bool pause() {
    ++calls_;
    if (spinning_) {
      // By the clock, not by count: a look costs nanoseconds in shared memory and microseconds in a network library.
      if (began_ns_ == 0) began_ns_ = monotonic_ns();
      if (calls_ % 8 == 0 && monotonic_ns() - began_ns_ > kSpinFor_ns) spinning_ = false;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
      return false;
    }
    if (sleep_ns_ > 0 || calls_ % 64 == 0) slow_down();
    if (sleep_ns_ == 0) {
      sched_yield();
    } else {
      const timespec t{0, sleep_ns_};
      nanosleep(&t, nullptr);
    }
    return true;
  }

 private:
  static constexpr std::int64_t kSpinFor_ns = 10'000;
  static constexpr std::int64_t kYieldFor_ns = 20'000'000;  // sleeping adds latency of 1 % at most
  static constexpr std::int64_t kServeEvery_ns = 50'000'000;

  void slow_down() {
    const std::int64_t now = monotonic_ns();
    if (began_ns_ == 0) began_ns_ = now;
    if (now - began_ns_ > kYieldFor_ns) sleep_ns_ = 100'000;
    if (context_.while_waiting && now - served_ns_ > kServeEvery_ns) {
      served_ns_ = now;
      context_.while_waiting();
    }
  }

  const CommContext& context_;
  bool spinning_;
  std::uint32_t calls_ = 0;
  long sleep_ns_ = 0;
  std::int64_t began_ns_ = 0, served_ns_ = 0;
};

/// A collective for the time of its life, in the status that the watchdogs read.
class InCollective {
 public:
  InCollective(CommContext& context, const char* channel, std::uint64_t sequence, const char* operation,
               std::uint64_t count, const char* type, const char* what)
      : context_(context) {
    context.stay_if_ending();
    context.status.enter(channel, sequence, operation, count, type, what);
  }
  InCollective(const InCollective&) = delete;
  InCollective& operator=(const InCollective&) = delete;
  ~InCollective() {
    context_.stay_if_ending();
    context_.status.leave();
  }

 private:
  CommContext& context_;
};

}  // namespace lockstep
