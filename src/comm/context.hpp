#pragma once
#include <sched.h>
#include <unistd.h>

#include <cstdint>
#include <ctime>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/profile.hpp"
#include "lockstep/comm/world.hpp"
#include "progress.hpp"
#include "status.hpp"

namespace lockstep {

/// State shared by the communicators of a process: the rank's status, and how the rank waits.
struct CommContext {
  explicit CommContext(RankBoard* board, const NodeBoard* node = nullptr) : status(board), node_board(node) {}
  /// Blocks forever once the job is ending. A rank that was stopped and continues must not complete a collective that
  /// the others have abandoned.
  void stay_if_ending() const {
    if (node_board == nullptr) return;
    while (node_board->ending.load(std::memory_order_relaxed) != 0) pause();
  }
  Status status;
  const NodeBoard* node_board;
  WorldOptions options;
  Progress* progress = nullptr;    ///< drives started collectives; null without MPI_THREAD_MULTIPLE
  bool crowded = false;            ///< more ranks than CPUs on this node: waiting must yield
  std::vector<std::string> hosts;  ///< host of each rank
  /// A waiting rank calls it occasionally, if the watchdog cannot use MPI from its own thread.
  std::function<void()> while_waiting;
  /// Watchdog::wait_failed(), if there is a watchdog.
  std::function<void(const std::string& why, bool late)> wait_failed;
};

/// The back-off of one wait: spins for the duration of a fast collective, then yields the CPU, and finally sleeps.
class Backoff {
 public:
  explicit Backoff(const CommContext& context) : context_(context), spinning_(!context.crowded) {}
  /// Call between two polls. Returns false while still spinning, so that the caller can skip expensive polls.
  bool pause() {
    ++calls_;
    if (spinning_) {
      // By the clock, not by count: a poll costs nanoseconds in shared memory and microseconds in a network library.
      if (began_ns_ == 0) began_ns_ = monotonic_ns();
      if (calls_ % 8 == 0 && monotonic_ns() - began_ns_ > kSpinFor_ns) spinning_ = false;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#elif defined(__aarch64__)
      asm volatile("yield");
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
  static constexpr std::int64_t kYieldFor_ns = 20'000'000;  // sleeping adds at most 1 % latency
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

/// Marks the rank as inside a collective, in the status that the watchdogs read, for the life of the object.
class InCollective {
 public:
  InCollective(CommContext& context, const char* channel, const Signature& call)
      : context_(context),
        call_(call),
        span_("collective", profile::Kind::collective, call.what.chars.data(),
              std::string_view(channel) == "world" ? static_cast<std::uint32_t>(call.sequence) : 0) {
    context.stay_if_ending();
    context.status.enter(channel, call);
  }
  InCollective(const InCollective&) = delete;
  InCollective& operator=(const InCollective&) = delete;
  ~InCollective() {
    context_.stay_if_ending();
    context_.status.leave();
  }
  const Signature& call() const { return call_; }

 private:
  CommContext& context_;
  Signature call_;
  profile::Span span_;
};

}  // namespace lockstep
