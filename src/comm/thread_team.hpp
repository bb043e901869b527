#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/comm/world.hpp"
#include "signature.hpp"
#include "status.hpp"

namespace lockstep {

/// State shared by the ranks of a communicator between threads.
///
/// A collective has three phases: a synchronisation, before which each rank publishes its call and the address of its
/// data; work on the other ranks' memory; and a second synchronisation. Signatures are double-buffered, because a rank
/// may be one collective ahead of another rank that still compares.
struct ThreadChannel {
  explicit ThreadChannel(int ranks) : slots(static_cast<std::size_t>(ranks)) {}

  struct alignas(64) Slot {
    Signature calls[2];
    const void* data = nullptr;
  };
  /// A sum that some ranks have not started yet. The last rank performs the addition.
  struct Started {
    Signature call;
    std::vector<void*> values;  ///< by rank
    int arrived = 0;
    std::atomic<bool> done{false};
  };

  std::vector<Slot> slots;
  std::atomic<std::uint64_t> arrived{0};                      ///< arrivals at synchronisations, over all ranks
  std::mutex mutex;                                           ///< protects `started`
  std::map<std::uint64_t, std::shared_ptr<Started>> started;  ///< by sequence number
};

struct CommContext;

/// Collectives between threads of one process, which read each other's memory without copies. Sums are in rank order.
/// Mismatched calls are always detected; the step is compared only with dist.check_collectives. The communicator is for
/// the thread of rank `rank`.
std::unique_ptr<Communicator> make_thread_communicator(ThreadChannel& channel, const char* name, int rank,
                                                       CommContext& context);

/// State shared by ranks that are threads of one process: their boards, the channels of their communicators, and the
/// end of the process when a rank fails or waits too long.
class ThreadTeam {
 public:
  ThreadTeam(int ranks, const std::string& host);
  int size() const { return static_cast<int>(waits_.size()); }
  RankBoard* board(int rank) const { return &boards_[rank]; }
  /// A waiting rank calls it occasionally. Ends the process with a report if the rank has waited in one collective for
  /// longer than timeout_s. Time in which the process did not run does not count. 0 waits forever.
  void look(int rank, double timeout_s);
  /// Prints the message of the first rank that calls it and ends the process. Does not return.
  [[noreturn]] void end(int exit_code, const std::string& message);

  ThreadChannel world, node;
  std::shared_ptr<NodeMemory> shared;  ///< memory that rank 0 allocates for all ranks

 private:
  struct Wait {
    std::int64_t since_ns = 0, looked_ns = 0;
    double waited_s = 0;
  };
  std::unique_ptr<RankBoard[]> boards_;
  std::vector<Wait> waits_;  ///< each used by its rank only
  std::atomic<bool> ending_{false};
};

}  // namespace lockstep
