#pragma once
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "late_rank_report.hpp"
#include "lockstep/comm/communicator.hpp"
#include "status.hpp"

namespace lockstep {

/// Connections that break when a process dies, so that ranks of other hosts know at once.
///
/// The first ranks of the hosts form a ring. Each keeps a TCP connection to the next one and watches it: the system
/// closes the connections of a process that dies, whatever killed it. Over the ring travel where a rank is, once a
/// second, and the news that the job is being ended, so that the end of a rank that others have ended is no death.
/// Where no connection is possible, a dead host is noticed after dist.timeout only.
class Lifeline {
 public:
  struct Events {
    std::function<void(const RankSeen&)> died;  ///< the watched rank has died; called once, from the helper thread
    std::function<void()> ending;               ///< another host ends the job
  };
  /// Connects the ring. Collective over `world`.
  ///
  /// ring   ranks of `world` that watch each other, in the order of the ring
  /// mine   where this rank is
  /// alone  whether the host of each ring member has no other rank. Else the others have time to report its death
  Lifeline(Communicator& world, const std::vector<int>& ring, const std::vector<bool>& alone, const RankBoard& mine,
           Events events);
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;
  /// Says goodbye: the end of this rank is no death.
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
    std::string received;  ///< less than a pulse
    std::string unsent;
    Kind said = Kind::alive;
  };

  void connect(Communicator& world, const std::vector<int>& ring);
  void run();
  bool take(Link& link);
  void send(Link& link, Kind kind);
  void close(Link& link);

  const RankBoard& mine_;
  Events events_;
  Link next_;      ///< watched
  Link previous_;  ///< watches this rank
  Pulse last_{};   ///< of the watched rank
  int next_rank_ = -1;
  double patience_s_ = 0;
  int wake_[2] = {-1, -1};  ///< a pipe; closing its end for writing ends the thread
  std::mutex sending_;
  std::jthread thread_;
};

}  // namespace lockstep
