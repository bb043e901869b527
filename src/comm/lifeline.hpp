#pragma once
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "fault_report.hpp"
#include "lockstep/comm/communicator.hpp"
#include "status.hpp"

namespace lockstep {

/// Connections that break when a process dies, so that ranks of other hosts know at once.
///
/// The first ranks of the hosts form a ring. Each keeps a TCP connection to the next one and watches it: the system
/// closes the connections of a process that dies, whatever killed it. Once a second each rank sends its phase and
/// collective to the rank that watches it. The ring also announces that the job is ending, so that the ranks that end
/// then do not count as dead. Where no connection is possible, a dead host is noticed only after dist.timeout.
class Lifeline {
 public:
  struct Events {
    std::function<void(const RankSeen&)> died;  ///< the watched rank has died; called once, from the helper thread
    std::function<void()> ending;               ///< another host ends the job
  };
  /// Connects the ring. Collective over `world`.
  ///
  /// ring   ranks of `world` that watch each other, in the order of the ring
  /// mine   the board of this rank
  /// alone  whether each ring member is the only rank of its host; otherwise the ring waits longer, because the others
  ///        can report the death
  Lifeline(Communicator& world, const std::vector<int>& ring, const std::vector<bool>& alone, const RankBoard& mine,
           Events events);
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;
  /// Announces that this rank ends regularly, so that its watcher does not report a death.
  ~Lifeline();
  /// Tells all hosts that the job is being ended. From any thread.
  void announce_end();

 private:
  enum class Kind : std::int64_t { alive, leaving, ending };
  struct Pulse {
    Kind kind;
    RankSeen rank;  ///< the sender
  };
  struct Link {
    int socket = -1;
    std::string received;  ///< an incomplete pulse
    std::string unsent;
    Kind said = Kind::alive;
  };

  void connect(Communicator& world, const std::vector<int>& ring);
  void run();
  bool receive(Link& link);
  void send(Link& link, Kind kind);
  void close(Link& link);

  const RankBoard& mine_;
  Events events_;
  Link next_;      ///< watched
  Link previous_;  ///< watches this rank
  Pulse last_{};   ///< of the watched rank
  int next_rank_ = -1;
  double patience_s_ = 0;
  int wake_[2] = {-1, -1};  ///< a pipe; closing its write end ends the thread
  std::mutex sending_;
  std::jthread thread_;
};

}  // namespace lockstep
