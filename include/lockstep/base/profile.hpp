#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/stopwatch.hpp"

/// Spans of time for the timeline of `--profile`. Threads write to their own buffers, without locks. While nothing is
/// recorded, a span costs one predictable branch.
namespace lockstep::profile {

enum class Kind : std::uint8_t { phase, forward, backward, collective };

/// A span that has ended. Times are nanoseconds of std::chrono::steady_clock.
struct Event {
  static constexpr std::size_t kDetail = 31;
  const char* name;  ///< a string literal
  std::int64_t begin_ns, end_ns;
  float flops;           ///< floating-point operations of each thread that took part; 0: unknown
  std::uint32_t number;  ///< of a step, from 1; of a collective of the world communicator; 0: none
  Kind kind;
  char detail[kDetail];  ///< such as the data of a collective; not null-terminated when full
  std::string_view text() const {
    const std::string_view all(detail, kDetail);
    return all.substr(0, all.find('\0'));
  }
};

/// The spans of one thread, in the order of their ends.
struct Lane {
  int rank = 0, number = 0;
  std::string name;
  std::vector<Event> events;
  std::uint64_t lost = 0;  ///< spans dropped because the lane was full
};

namespace detail {
inline std::atomic<int> recorders{0};
}  // namespace detail

inline bool recording() { return detail::recorders.load(std::memory_order_relaxed) != 0; }

/// A span from construction to end() or destruction. Spans of a thread must nest.
class Span {
 public:
  /// name    a string literal
  /// detail  may be null; its first characters are copied
  explicit Span(const char* name, Kind kind = Kind::forward, const char* detail = nullptr, std::uint32_t number = 0) {
    if (recording()) [[unlikely]]
      begin(name, kind, detail, number);
  }
  ~Span() { end(); }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  void end() {
    if (lane_ != nullptr) [[unlikely]]
      finish();
  }

 private:
  friend class Phase;
  friend void add_flops(double flops);
  friend struct Recorder;
  struct Buffer;
  static void add_to_innermost(double flops);
  void begin(const char* name, Kind kind, const char* detail, std::uint32_t number);
  void finish();
  Buffer* lane_ = nullptr;
  Span* outer_;
  Event event_;
};

/// Adds floating-point operations to the innermost span of the calling thread.
///
/// flops  of one thread: those of an operation divided by the threads that share it
inline void add_flops(double flops) {
  if (recording()) [[unlikely]]
    Span::add_to_innermost(flops);
}

/// Consecutive phases of one task. Their seconds are always measured; while recording, each phase is also a span.
class Phase {
 public:
  /// Adds the seconds until next() or end() to `seconds`.
  Phase(const char* name, double& seconds) : seconds_(&seconds), span_(name, Kind::phase) {}
  /// Ends the phase and begins another one.
  void next(const char* name, double& seconds) {
    end();
    seconds_ = &seconds;
    if (recording()) [[unlikely]]
      span_.begin(name, Kind::phase, nullptr, 0);
  }
  void end() {
    *seconds_ += watch_.restart();
    span_.end();
  }

 private:
  Stopwatch watch_;
  double* seconds_;
  Span span_;
};

/// The time of Event. Units: nanoseconds.
std::int64_t now_ns();

/// Gives the calling thread a lane. Each thread that trains calls it.
///
/// number    of the thread in its rank, from 0
/// capacity  most spans that the lane holds; later ones are dropped
void enter(int rank, int number, std::size_t capacity);
/// Names the lane of the calling thread, a helper of a rank. Its first recorded span creates the lane.
///
/// name  a string literal
void name_helper(int rank, const char* name);
/// Starts recording in all threads of the process. A span that has begun before is not recorded. If several ranks share
/// the process, each calls start() and stop(), and the last stop() ends the recording.
void start();
void stop();
/// Returns the lanes of a rank and empties them. Call it after stop().
std::vector<Lane> take(int rank);

/// Makes each recorded span call `begin` and `end` in its thread, for example to show it in another profiler. Call it
/// before start().
void set_mirror(void (*begin)(const char* name), void (*end)());

}  // namespace lockstep::profile
