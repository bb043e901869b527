#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "lockstep/base/process.hpp"

namespace lockstep {

/// Nanoseconds of the host's monotonic clock: the same for all processes of a host.
std::int64_t monotonic_ns();

/// A value with one writer and many readers, which may be other processes. Zeroed memory is a zero value.
///
/// Double-buffered: the writer fills the copy that readers do not use, then publishes it. A reader retries only if a
/// whole store() ended while it read, so a writer that stops or dies within store() blocks nobody: readers get the
/// previous value.
template <class T>
class SharedValue {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 8 == 0);

 public:
  void store(const T& value) { publish(fill(value)); }
  T load() const {
    std::array<std::uint64_t, kWords> words;
    for (;;) {
      const std::uint64_t version = version_.load(std::memory_order_acquire);
      for (std::size_t i = 0; i < kWords; ++i) words[i] = copies_[version % 2][i].load(std::memory_order_acquire);
      if (version_.load(std::memory_order_relaxed) == version) break;
    }
    T value;
    std::memcpy(static_cast<void*>(&value), words.data(), sizeof(T));
    return value;
  }

 protected:
  /// The two halves of store(), separate so that a test can read between them.
  std::uint64_t fill(const T& value) {
    std::array<std::uint64_t, kWords> words;
    std::memcpy(words.data(), &value, sizeof(T));
    const std::uint64_t next = version_.load(std::memory_order_relaxed) + 1;
    // Release on each word: a reader that sees a word of this value also sees that the previous version was published.
    for (std::size_t i = 0; i < kWords; ++i) copies_[next % 2][i].store(words[i], std::memory_order_release);
    return next;
  }
  void publish(std::uint64_t next) { version_.store(next, std::memory_order_release); }

 private:
  static constexpr std::size_t kWords = sizeof(T) / 8;
  std::atomic<std::uint64_t> version_;
  std::array<std::array<std::atomic<std::uint64_t>, kWords>, 2> copies_;
};

/// A text of bounded length inside shared memory and messages.
template <std::size_t N>
struct Text {
  std::array<char, N> chars;
  void set(std::string_view text) {
    chars.fill('\0');
    std::memcpy(chars.data(), text.data(), text.size() < N ? text.size() : N - 1);
  }
  std::string_view view() const { return {chars.data(), strnlen(chars.data(), N)}; }
};

/// The identity of a collective call, compared byte by byte; texts are truncated.
struct Signature {
  std::uint64_t sequence;
  std::int64_t step;
  std::uint64_t count;
  Text<24> operation;
  Text<8> type;
  Text<64> what;
};

enum class Activity : std::uint32_t { starting, working, in_collective, leaving };

/// Who a rank is.
struct Identity {
  std::int64_t pid;
  std::int64_t started;  ///< field 22 of /proc/PID/stat: distinguishes this process from a later one with the same PID
  std::int32_t rank, node, node_rank, unused;
  Text<64> host;
};

/// The phase and collective of a rank when it last recorded them.
struct Whereabouts {
  std::int64_t since_ns;         ///< when the activity began
  std::int64_t step;             ///< -1: none
  std::uint64_t sequence;        ///< collectives begun on `channel`
  std::uint64_t world_sequence;  ///< collectives begun by all ranks together
  std::uint64_t count;           ///< elements
  Activity activity;
  std::uint32_t unused;
  Text<24> phase;
  Text<16> channel;  ///< "world" or "node"
  Text<24> operation;
  Text<8> type;
  Text<48> what;
};

/// A rank's record in the memory of its node. The rank writes it; the watchdogs of the node read it, even when the rank's
/// process has stopped or died.
struct RankBoard {
  SharedValue<Identity> identity;
  SharedValue<Whereabouts> whereabouts;
};

/// Shared by the ranks of a node; zero at first.
struct NodeBoard {
  std::atomic<std::int32_t> reporter;   ///< 1 + node rank of the watchdog that reports, 0, or -1: it is done
  std::atomic<std::int32_t> ending;     ///< nonzero: the job is being ended; no rank of the node continues its work
  std::atomic<std::int32_t> aborting;   ///< 1 + node rank of the first rank that printed why it aborts, or 0
  std::atomic<std::int32_t> announced;  ///< nonzero: the other nodes know that the job is ending
};

/// The writer's side of one rank's board. Methods are for the thread that calls collectives.
class Status {
 public:
  explicit Status(RankBoard* board) : board_(board) { now_.step = -1; }
  void introduce(const Identity& identity) { board_->identity.store(identity); }
  void at(const char* phase, std::int64_t step);
  void enter(const char* channel, const Signature& call);
  /// Back to work after enter().
  void leave() { tell(Activity::working); }
  void leaving() { tell(Activity::leaving); }
  std::int64_t step() const { return now_.step; }
  const RankBoard& board() const { return *board_; }

 private:
  void tell(Activity activity);
  RankBoard* board_;
  Whereabouts now_{};
};

}  // namespace lockstep
