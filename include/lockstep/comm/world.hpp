#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "lockstep/comm/communicator.hpp"

namespace lockstep {

struct WorldOptions {
  double timeout_s = 600;          ///< dist.timeout; 0 turns the watchdog off
  bool check_collectives = false;  ///< dist.check_collectives
};

/// Memory that all ranks of a node see at one place (an MPI-3 shared window); one rank on its own has plain memory.
class NodeMemory {
 public:
  virtual ~NodeMemory() = default;
  virtual std::span<std::byte> bytes() const = 0;
};

/// Which rank am I, on which host, and the ranks' common channel. One per process, made first in main().
///
/// Initialises MPI (unless the process was started alone and needs none of it: a start without mpirun or srun costs nothing), sets the
/// log's speaker, starts the watchdog. The destructor finalises.
class World {
 public:
  explicit World(int* argc, char*** argv);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();
  /// Timeout and checks, once the configuration is known.
  void configure(const WorldOptions& options);

  int rank() const;
  int size() const;
  int node_rank() const;        ///< rank among the ranks of this host, from MPI_COMM_TYPE_SHARED
  int node_size() const;
  int nodes() const;
  const std::string& host() const;
  Communicator& communicator();  ///< all ranks
  Communicator& node();          ///< the ranks of this host

  /// Memory shared by the ranks of this node; collective over the node.
  std::unique_ptr<NodeMemory> share_on_node(std::size_t size_bytes);

  /// Tells the watchdog where this rank is; cheap enough for every step.
  void at(const char* phase, std::int64_t step);

  /// Runs `body` on every rank; if it throws on some, all ranks leave with that Error: the lowest failing rank prints its message
  /// once. Use before the first collective of a phase (configuration, files). Collective.
  void together(const char* doing, const std::function<void()>& body);

  /// A rank that fails alone: prints the message and ends the job on all ranks with this exit code. Does not return.
  [[noreturn]] void abort(int exit_code, const std::string& message);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
