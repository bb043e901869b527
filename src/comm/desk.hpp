#pragma once
#include <mpi.h>

#include <memory>

#include "context.hpp"
#include "lockstep/comm/desk.hpp"

namespace lockstep {

/// The desk of a single rank.
std::unique_ptr<Desk> make_local_desk(Desk::Answer answer);
/// A thread of rank 0 looks for questions once a millisecond. Duplicates `comm`. Needs MPI_THREAD_MULTIPLE.
std::unique_ptr<Desk> make_mpi_desk(MPI_Comm comm, CommContext& context, Desk::Answer answer);

}  // namespace lockstep
