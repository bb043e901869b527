#pragma once
#include <string>

namespace lockstep {

/// The environment variable in which a launcher announces several processes, or "" if the process was started alone and
/// may skip MPI. Recognises Open MPI's mpirun, PMIx and PMI (srun, MPICH, Intel, Cray PALS and ALPS, Flux, JSM) and any
/// Slurm step. LOCKSTEP_MPI=always|never overrides the detection.
///
/// errors   Error (usage) if LOCKSTEP_MPI has another value
std::string launched_by();

}  // namespace lockstep
