#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/communicator.hpp"

namespace lockstep {

struct WorldOptions {
  double timeout_s = 600;          ///< dist.timeout: longest wait in one collective; 0 waits for ever
  bool check_collectives = false;  ///< dist.check_collectives
  std::size_t max_message_bytes = std::size_t{1} << 30;  ///< longer data travel in pieces (MPI counts are 32 bit)
  bool progress_thread = true;  ///< a helper keeps started all-reduces moving while this rank computes
  /// All-reduces go through memory that the ranks of a node share, in pieces of this size (between nodes: those that are one piece);
  /// 0: always through MPI.
  std::size_t node_path_bytes = std::size_t{256} << 10;
};

/// An error that all ranks leave with. Its message has been printed, once, by the rank that met it.
class Departure : public Error {
 public:
  using Error::Error;
};

/// Memory that all ranks of a node see at one place (an MPI-3 shared window); one rank on its own has plain memory.
/// Zero at first, aligned to 64 bytes. The destructor is collective over the node.
class NodeMemory {
 public:
  virtual ~NodeMemory() = default;
  virtual std::span<std::byte> bytes() const = 0;
};

/// Which rank am I, on which host, and the ranks' common channel. One per process, made first in main(); ranks that are
/// threads of a process (run_as_threads) have one each.
///
/// Initialises MPI (unless the process was started alone and needs none of it: a start without mpirun or srun costs
/// nothing), sets the log's speaker, starts the watchdog. The destructor waits for all ranks and finalises. The
/// environment variable LOCKSTEP_MPI=always initialises MPI in a process started alone, too; =never keeps away from it.
///
/// errors  Error (internal) when MPI cannot be initialised
class World {
 public:
  explicit World(int* argc, char*** argv);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();
  /// Timeout and checks, once the configuration is known; the same on all ranks. Collective.
  void configure(const WorldOptions& options);
  const WorldOptions& options() const;

  int rank() const;
  int size() const;
  int node_rank() const;  ///< rank among the ranks of this host, from MPI_COMM_TYPE_SHARED
  int node_size() const;
  int node() const;  ///< number of this host, 0..nodes()-1, in the order of their first ranks
  int nodes() const;
  const std::string& host() const;
  Communicator& communicator();       ///< all ranks
  Communicator& node_communicator();  ///< the ranks of this host

  /// "Open MPI v4.1.4, MPI 3.1, MPI_THREAD_MULTIPLE" or "not initialised (started alone)".
  const std::string& mpi_description() const;

  /// Memory shared by the ranks of this node, the same size on each; collective over the node.
  /// errors  Error (internal) naming the size when the node has not that much shared memory
  std::unique_ptr<NodeMemory> share_on_node(std::size_t size_bytes);

  /// Tells the watchdog where this rank is; cheap enough for every step (tens of nanoseconds). A step of -1 means none.
  void at(const char* phase, std::int64_t step);

  /// Runs `body` on every rank; if it throws on some, the lowest failing rank prints its message once and all ranks
  /// throw that Departure. Use before the first collective of a phase (configuration, files); collectives inside `body`
  /// are for all ranks or none, as everywhere. Collective. One rank on its own lets the exception through.
  void together(const char* doing, const std::function<void()>& body);

  /// The whole program of this rank: returns what body returns, or the exit code of the error that ended it. An error
  /// that all ranks leave with has been printed; any other is printed here and, when there are other ranks, ends the
  /// job with abort().
  int run(const std::function<int()>& body);

  /// A rank that fails alone: prints the message (once per node, however many ranks fail with it) and ends the job on
  /// all ranks with this exit code. Does not return.
  [[noreturn]] void abort(int exit_code, const std::string& message);

 private:
  struct Impl;
  explicit World(std::unique_ptr<Impl> impl);
  friend int run_as_threads(World& process, int ranks, const std::function<int(World&)>& body);
  std::unique_ptr<Impl> impl_;
};

/// Runs `body` as the program of so many ranks of one host, each a thread of this process with a World of its own, and
/// returns the largest exit code. Their memory of the node is plain memory of the process; their options are those of
/// `process`, which must be one rank on its own. A rank that fails alone, or waits too long, ends the process with one
/// message.
int run_as_threads(World& process, int ranks, const std::function<int(World&)>& body);

}  // namespace lockstep
