#pragma once
#include <mpi.h>

#include <cstddef>
#include <memory>
#include <string>

#include "lockstep/comm/world.hpp"

namespace lockstep {

/// Memory of one rank. Units: bytes.
std::unique_ptr<NodeMemory> plain_memory(std::size_t size_bytes);
/// Memory that the ranks of a host share. All pass the same size. Collective over `node`.
///
/// errors   Error (internal) on all its ranks, with the size and what is free, if /dev/shm is too small;
///          out_of_memory() if a rank may not map it
std::unique_ptr<NodeMemory> shared_memory(MPI_Comm node, int node_rank, const std::string& host,
                                          std::size_t size_bytes);

}  // namespace lockstep
