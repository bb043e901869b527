#pragma once
#include <mpi.h>

#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>

#include "compressed_sum.hpp"
#include "context.hpp"
#include "lockstep/comm/communicator.hpp"
#include "node_reduce.hpp"
#include "signature.hpp"

namespace lockstep {

/// Throws Error (internal) unless `code` is MPI_SUCCESS. The message is `doing`, then MPI's text.
void check_mpi(int code, const std::string& doing, const std::source_location& where = std::source_location::current());

/// Whether all requests are complete; lets them progress. errors  as check_mpi()
bool complete(std::span<MPI_Request> requests, std::string_view operation, std::string_view what);

/// The fast path of small all-reduces: shared memory within a node, and a communicator of the nodes' first ranks across
/// nodes.
struct NodePath {
  NodeReduce* reduce = nullptr;
  MPI_Comm leaders = MPI_COMM_NULL;  ///< on the first rank of each node, if there are several nodes
  bool several_nodes = false;
  std::vector<int> world_ranks;  ///< world rank of each rank of this node
};

/// Collectives over MPI. Each uses the non-blocking form, driven by MPI_Test, so that a waiting rank can report its
/// position and yield. Duplicates `comm`, named `channel` in reports. With a node path it must contain all ranks.
std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm comm, const char* channel, CommContext& context,
                                                    NodePath node_path = {});

}  // namespace lockstep
