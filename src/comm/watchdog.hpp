#pragma once
#include <mpi.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "fault_report.hpp"
#include "status.hpp"

namespace lockstep {

/// The helper thread that ends a stuck job and reports the reason.
///
/// Each rank records its position in memory shared by its node, so the other ranks of the node know where it was even
/// if its process is stopped or killed. The watchdog of a rank observes its own rank (has it waited in one collective
/// for longer than the timeout?) and the next rank of its node (has its process died?). A watchdog that detects a
/// problem becomes the reporter: first within its node by an atomic claim, then across nodes by asking the ranks of
/// node 0 (and, if none answers, of the next nodes) to report instead. The reporter asks one rank per node for
/// its node's table, then all ranks of nodes that did not answer, prints the report, saves its state and calls
/// MPI_Abort. If it dies before, another rank of its node takes over. If the job does not end, each watchdog kills the
/// processes of its node after a while.
///
/// Well before the timeout, the lowest of the ranks that wait in a collective of a step warns, with the same query but
/// without ending the job: after 10 s (or half the timeout, if that is less), and then only for waits twice as long.
///
/// Time in which a process did not run (a suspended job) does not count.
///
/// With MPI_THREAD_MULTIPLE the thread itself communicates with other nodes. Otherwise it never calls MPI: the waiting
/// rank does so in while_waiting(). Ranks busy elsewhere then cannot answer, and only ranks of their own node can
/// report them.
class Watchdog {
 public:
  struct Setup {
    MPI_Comm comm = MPI_COMM_NULL;  ///< a separate communicator of all ranks
    bool threads_may_call_mpi = false;
    int rank = 0, size = 1;
    int node = 0, node_rank = 0, node_size = 1;
    NodeBoard* board = nullptr;
    RankBoard* boards = nullptr;     ///< node_size entries
    std::vector<int> node_of;        ///< node of each rank
    std::vector<std::string> hosts;  ///< host of each rank
    std::function<bool()> rescue;    ///< saves the state of this rank; returns whether a new start continues from it
  };
  explicit Watchdog(Setup setup);
  /// Units: seconds. 0 waits forever; a dead rank still ends the job.
  void set_timeout(double timeout_s) { timeout_s_ = timeout_s; }
  /// Whether there is a state to save. The other ranks then wait longer for the end of the job.
  void set_saves(bool saves) { saves_ = saves; }
  /// A rank of another host has died (see Lifeline). From any thread.
  void died(const RankSeen& rank);
  /// Called before this rank ends the job.
  void before_end(std::function<void()> announce);
  /// A wait for other ranks outside MPI, such as in NCCL, has failed. Ends the job like a wait in MPI if a rank is lost or
  /// the wait has exceeded the timeout (`late`), provided that there is a state to save; else returns.
  void wait_failed(const std::string& why, bool late);
  /// Call from the rank that waits in a collective, if the helper thread must not call MPI.
  void while_waiting();
  /// Calls MPI_Abort, then end_by_force() if this process is still alive soon after: MPI_Abort can hang if the launcher
  /// is unreachable. Does not return.
  [[noreturn]] void abort_job(int exit_code);
  /// Kills the processes of this node without MPI and exits with the exit code. Does not return.
  [[noreturn]] void end_by_force(int exit_code);

 private:
  enum Tag : int { kQuery = 1, kLook, kReply, kAlarm, kTaken };
  struct Outgoing {
    std::vector<std::byte> bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  void run(const std::stop_token& stop);
  double tick_s() const;
  void look_at_self(double passed_s);
  void warn_of_wait();
  void look_at_neighbour();
  void raise(const Alarm& alarm);
  void act(bool may_call_mpi);
  void serve();
  void send(int to, Tag tag, std::span<const std::byte> bytes);
  void announce_end();
  [[noreturn]] void leave_by_force();
  /// Saves the state of this rank. Returns the exit code of the job.
  int rescue() const;
  /// How long a rank waits for another one to end the job. Units: seconds
  double patience_s() const;
  /// Whether a rank that has claimed the report (NodeBoard::reporter) has died.
  bool is_gone(std::int32_t reporter) const;
  bool others_take_report(const Alarm& alarm);
  std::vector<RankSeen> own_node() const;
  /// query  kQuery, after which no rank continues its work, or kLook
  std::vector<RankSeen> all_ranks(bool may_call_mpi, Tag query);
  void gather(std::vector<RankSeen>& all, bool first_ranks_only, Tag query);
  /// Answers other nodes until done() returns true, or for `seconds` at most. Returns whether done() was true.
  bool serve_until(const std::function<bool()>& done, double seconds);
  void await_end(double seconds);
  int node_count() const;

  Setup s_;
  std::vector<bool> visible_;  ///< ranks of the node whose process is visible in /proc
  std::atomic<double> timeout_s_{0};
  std::atomic<bool> saves_{false};
  double late_s_ = 0;
  double quiet_s_ = 0;  ///< since this rank last began a collective of all ranks
  std::uint64_t last_sequence_ = 0;
  std::int64_t late_since_ns_ = 0;
  double warn_after_s_ = 10;
  bool noticed_ = false, warned_ = false;  ///< of the present wait
  std::int64_t looked_ns_ = 0;
  std::atomic<bool> alarmed_{false};
  Alarm alarm_{};
  std::atomic<bool> acting_{false};
  bool taken_ = false;  ///< another node has accepted the report
  std::vector<RankSeen> replies_;
  std::vector<RankSeen> fallen_;  ///< dead ranks of other hosts
  std::function<void()> announce_end_ = [] {};
  std::list<Outgoing> outgoing_;

  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;
};

}  // namespace lockstep
