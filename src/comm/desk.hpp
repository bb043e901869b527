#pragma once
#include <mpi.h>

#include <memory>

#include "context.hpp"
#include "lockstep/comm/desk.hpp"

namespace lockstep {

/// A thread of rank 0 looks for questions. Duplicates `comm`; null: of a single rank. Needs MPI_THREAD_MULTIPLE.
std::unique_ptr<Desk> make_desk(MPI_Comm comm, CommContext& context, Desk::Answer answer);

}  // namespace lockstep
