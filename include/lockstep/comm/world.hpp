#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/desk.hpp"

namespace lockstep {

struct WorldOptions {
  double timeout_s = 600;          ///< dist.timeout: longest wait in one collective; 0 waits forever
  bool check_collectives = false;  ///< dist.check_collectives
  std::size_t max_message_bytes = std::size_t{1}
                                  << 30;  ///< longer data travel in several messages (MPI counts are 32 bit)
  bool progress_thread = true;            ///< a helper thread drives started all-reduces while the rank computes
  /// All-reduces use the shared memory of a node, in blocks of this size (across nodes: only if the data fit one
  /// block). 0: always use MPI.
  std::size_t node_path_bytes = std::size_t{256} << 10;
};

/// An error that all ranks throw together. The rank that failed has already printed the message.
class CollectiveError : public Error {
 public:
  using Error::Error;
};

/// Memory shared by all ranks of a node (a segment of /dev/shm; plain memory for a single rank). Initially zero,
/// aligned to 64 bytes.
class NodeMemory {
 public:
  virtual ~NodeMemory() = default;
  virtual std::span<std::byte> bytes() const = 0;
};

/// The ranks of the job: this rank's number, its host and the communicators. Create one per process, first in main().
/// Ranks that are threads (run_as_threads) have one each.
///
/// The constructor initialises MPI, sets the log's speaker and starts the watchdog. A process started alone, without
/// mpirun or srun, does not initialise MPI. The destructor waits for all ranks and finalises MPI. The environment
/// variable LOCKSTEP_MPI=always initialises MPI even in a process started alone; =never prevents it. A start that hangs
/// for LOCKSTEP_START_TIMEOUT seconds (600), or an end that hangs for dist.timeout, ends this process with a message.
///
/// errors   Error (internal) if MPI cannot be initialised
class World {
 public:
  explicit World(int* argc, char*** argv);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();
  /// Sets timeout and checks from the configuration, which must be the same on all ranks. Collective.
  void configure(const WorldOptions& options);
  const WorldOptions& options() const;

  /// The ranks that pass the same `group`, as a world of their own with the same options: an error of it, thrown
  /// together, leaves the other groups alone. A rank that dies, or waits too long in any of them, ends the whole job.
  /// Its life lies within that of this world. Collective.
  std::unique_ptr<World> part(int group);
  /// Opens a desk: `answer` runs on rank 0. Collective.
  /// errors  Error (usage): the MPI library does not let several threads call it
  std::unique_ptr<Desk> open_desk(Desk::Answer answer);

  int rank() const;
  int size() const;
  int node_rank() const;  ///< rank among the ranks of this host (MPI_COMM_TYPE_SHARED)
  int node_size() const;
  int node() const;  ///< number of this host, 0..nodes()-1, in the order of the hosts' first ranks
  int nodes() const;
  const std::string& host() const;
  Communicator& communicator();       ///< all ranks
  Communicator& node_communicator();  ///< the ranks of this host

  /// "Open MPI v4.1.4, MPI 3.1, MPI_THREAD_MULTIPLE" or "not initialised (started alone)".
  const std::string& mpi_description() const;

  /// Allocates memory shared by the ranks of this node. All pass the same size. Collective over the node.
  /// errors   Error (internal) on all ranks of the node, with the size and what is free, if its shared memory
  ///          is too small
  std::shared_ptr<NodeMemory> share_on_node(std::size_t size_bytes);

  /// Records the phase and step of this rank for the watchdog. Costs tens of nanoseconds. A step of -1 means none.
  void at(const char* phase, std::int64_t step);

  /// From now on, when the job ends because a rank was lost, the reporting rank calls `save` from a helper thread;
  /// the job then ends with kExitRescued if it returns true, so that a new start continues. `save` must not use
  /// collectives, nor throw. Empty: no longer.
  void on_loss(std::function<bool()> save);
  /// Marks the state that on_loss() saves as changing: `save` is called before or after the life of the result, never
  /// meanwhile, and then the state no longer changes. Call no collective meanwhile: if one never returns, nothing is
  /// saved.
  std::unique_lock<std::timed_mutex> change();

  /// Runs `body` on every rank. If it throws on some ranks, the lowest failing rank prints its message once and all
  /// ranks throw a CollectiveError with it. Use it before the first collective of a phase (configuration, files).
  /// Collectives inside `body` must run on all ranks or on none. A single rank lets the exception through. Collective.
  void together(const char* doing, const std::function<void()>& body);

  /// Runs the program of this rank. Returns the result of `body`, or the exit code of the error that ended it.
  /// A CollectiveError has already been printed. Any other error is printed here; if there are other ranks, abort()
  /// ends the job.
  int run(const std::function<int()>& body);

  /// Ends the job on all ranks with this exit code, after an error on this rank alone. Prints the message once per
  /// node, even if several ranks fail. Does not return.
  [[noreturn]] void abort(int exit_code, const std::string& message);

 private:
  struct Impl;
  explicit World(std::unique_ptr<Impl> impl);
  friend int run_as_threads(World& process, int ranks, const std::function<int(World&)>& body);
  std::unique_ptr<Impl> impl_;
};

/// Runs `body` on `ranks` threads of this process, each a rank with its own World, and returns the largest exit code.
/// Memory shared on the node is plain memory of the process. All ranks have the options of `process`, which must be a
/// single rank unless `ranks` is 1: then `body` runs in a world of one rank, even within a larger job. If a rank fails
/// alone or waits too long, the process ends with a message.
int run_as_threads(World& process, int ranks, const std::function<int(World&)>& body);

}  // namespace lockstep
