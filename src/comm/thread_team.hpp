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

/// What the ends of a communicator between threads share.
///
/// A collective is a meeting, at which each rank has put down what it calls and where its data lie, then work on the
/// others' memory, then a second meeting after which everybody may go on. Signatures take turns between two places: a rank
/// is at most one collective ahead of one that still compares.
struct ThreadChannel {
  explicit ThreadChannel(int ranks) : slots(static_cast<std::size_t>(ranks)) {}

  struct alignas(64) Slot {
    Signature calls[2];
    const void* data = nullptr;
  };
  /// A sum that not all ranks have started; the last one adds up.
  struct Started {
    Signature call;
    std::vector<void*> values;  ///< by rank
    int arrived = 0;
    std::atomic<bool> done{false};
  };

  std::vector<Slot> slots;
  std::atomic<std::uint64_t> arrived{0};                      ///< ranks that have come to a meeting, over all meetings
  std::mutex mutex;                                           ///< of what follows
  std::map<std::uint64_t, std::shared_ptr<Started>> started;  ///< by sequence number
};

/// What ranks that are threads of one process share: the boards that say where each is, their communicators' channels, and
/// the end of the process when one of them fails or waits too long.
class ThreadTeam {
 public:
  ThreadTeam(int ranks, const std::string& host);
  int size() const { return static_cast<int>(waits_.size()); }
  RankBoard* board(int rank) const { return &boards_[static_cast<std::size_t>(rank)]; }
  /// For a rank that waits, now and then: ends the process with a report when it has waited in one collective for longer
  /// than this. Time in which the process itself did not run does not count. 0: for ever.
  void look(int rank, double timeout_s);
  /// Prints the message of the first rank that calls it, and ends the process. Does not return.
  [[noreturn]] void end(int exit_code, const std::string& message);

  ThreadChannel world, node;
  std::shared_ptr<NodeMemory> handed;  ///< memory on its way from rank 0 to the others

 private:
  struct Wait {
    std::int64_t since_ns = 0, looked_ns = 0;
    double waited_s = 0;
  };
  std::unique_ptr<RankBoard[]> boards_;
  std::vector<Wait> waits_;  ///< each for its rank alone
  std::atomic<bool> ending_{false};
};

}  // namespace lockstep
