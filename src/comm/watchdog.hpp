#pragma once
#include <mpi.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "report.hpp"
#include "status.hpp"

namespace lockstep {

/// The helper thread that ends a job which does not move, and says why.
///
/// Each rank writes where it is into memory that its node shares, so whatever becomes of a process, stopped or killed,
/// the others of its node know where it was. Each rank's watchdog looks at its own rank (has it waited in one
/// collective for longer than the timeout?) and at the next rank of its node (has its process died?). Whoever finds
/// something takes on the report: first on its node by an atomic claim, then among nodes by asking the ranks of node 0
/// (and, if those are silent, the next nodes) to do it. The reporter asks one rank per node for its node's table, then
/// all ranks of nodes that gave none, prints, and calls MPI_Abort. Should that not end the job, each watchdog kills the
/// processes of its node after a while.
///
/// Time in which a process itself did not run (a suspended job) does not count.
///
/// With MPI_THREAD_MULTIPLE the thread talks to other nodes itself. With less it never calls MPI: the waiting rank
/// does, by while_waiting(), so that ranks busy elsewhere cannot answer and are reported by their node's others or not
/// at all.
class Watchdog {
 public:
  struct Setup {
    MPI_Comm comm = MPI_COMM_NULL;  ///< of its own; all ranks
    bool threads_may_call_mpi = false;
    int rank = 0, size = 1;
    int node = 0, node_rank = 0, node_size = 1;
    NodeBoard* board = nullptr;
    RankBoard* boards = nullptr;     ///< node_size
    std::vector<int> node_of;        ///< of each rank
    std::vector<std::string> hosts;  ///< of each rank
  };
  explicit Watchdog(Setup setup);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();
  /// Units: seconds; 0: wait for ever (a dead rank still ends the job).
  void set_timeout(double timeout_s) { timeout_s_ = timeout_s; }
  /// For the thread that waits in a collective, when the helper must not call MPI.
  void while_waiting();
  /// MPI_Abort, and end_by_force() soon after if that does not end this process (its launcher may be out of reach, and then
  /// MPI_Abort itself can hang). Does not return.
  [[noreturn]] void abort_job(int exit_code);
  /// In place of MPI_Abort: kills the processes of this node and leaves with the exit code. Does not return.
  [[noreturn]] void end_by_force(int exit_code);

 private:
  enum Tag : int { kQuery = 1, kReply, kAlarm, kTaken };
  struct Outgoing {
    std::vector<std::byte> bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  void run();
  double tick_s() const;
  void look_at_self(double passed_s);
  void look_at_neighbour();
  void raise(const Alarm& alarm);
  void act(bool may_call_mpi);
  void serve();
  void send(int to, Tag tag, std::span<const std::byte> bytes);
  bool others_take_it(const Alarm& alarm);
  std::vector<RankSeen> own_node() const;
  std::vector<RankSeen> everyone(bool may_call_mpi);
  void gather(std::vector<RankSeen>& all, bool first_ranks_only);
  void await_end(double seconds);
  int node_count() const;

  Setup s_;
  std::vector<bool> visible_;  ///< ranks of the node whose process this one can see in /proc
  std::atomic<double> timeout_s_{0};
  double late_s_ = 0;
  double quiet_s_ = 0;  ///< since this rank began its last collective of all ranks
  std::uint64_t last_sequence_ = 0;
  std::int64_t late_since_ns_ = 0;
  std::int64_t looked_ns_ = 0;
  std::atomic<bool> alarmed_{false};
  Alarm alarm_{};
  std::atomic<bool> acting_{false};
  bool taken_ = false;  ///< another node has taken on the report
  std::vector<RankSeen> replies_;
  std::list<Outgoing> outgoing_;

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace lockstep
