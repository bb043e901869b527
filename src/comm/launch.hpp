#pragma once
#include <string>

namespace lockstep {

/// The environment variable by which a launcher says that this process is one of several ("" when there is none: the
/// process was started alone and may leave MPI alone). Knows Open MPI's mpirun, PMIx and PMI (srun, MPICH, Intel, Cray
/// PALS and ALPS, Flux, JSM) and a Slurm step of any kind; LOCKSTEP_MPI=always|never overrides it. errors  Error
/// (usage) when LOCKSTEP_MPI has another value
std::string launched_by();

}  // namespace lockstep
