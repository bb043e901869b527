#pragma once
#include <string>

namespace lockstep {

/// The environment variable in which a launcher announces several processes, or "" if the process was started alone and
/// may skip MPI. Recognises Open MPI's mpirun, PMIx and PMI (srun, MPICH, Intel, Cray PALS and ALPS, Flux, JSM) and any
/// Slurm step. LOCKSTEP_MPI=always|never overrides the detection.
///
/// errors   Error (usage) if LOCKSTEP_MPI has another value
std::string launched_by();

/// Checks that a rank that MPI connects to no other rank was meant to be alone. Ranks that were started by the launcher
/// of another MPI library, or by srun with another interface, would each train alone, in the same run directory.
///
/// launcher  the result of launched_by()
/// library   the MPI library, for the message
/// errors    Error (usage): the launcher announces several ranks
void require_launched_together(const std::string& launcher, const std::string& library);

/// LOCKSTEP_START_TIMEOUT, or 600: how long the start of all ranks may take. Units: seconds; 0 waits for ever.
/// errors  Error (usage) if it is not such a number
double start_limit_s();

/// The number that the launcher has given this process, or -1 if it does not say.
int launched_rank();

}  // namespace lockstep
