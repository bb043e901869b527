#include "launch.hpp"

#include <cstdlib>
#include <string_view>

#include "lockstep/base/error.hpp"

namespace lockstep {

std::string launched_by() {
  if (const char* forced = std::getenv("LOCKSTEP_MPI"); forced != nullptr && *forced != '\0') {
    const std::string_view value = forced;
    require_usage(value == "always" || value == "never" || value == "auto", "environment variable LOCKSTEP_MPI = '",
                  value, "': must be always, never or auto");
    if (value == "always") return "LOCKSTEP_MPI";
    if (value == "never") return {};
  }
  // Includes a Slurm step without PMI (srun --mpi=none): MPI_Init then reports the problem. Otherwise N processes that
  // each believe to be alone would overwrite each other's files.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMIX_NAMESPACE", "PMI_RANK", "PMI_SIZE", "PMI_FD",
                           "HYDI_CONTROL_FD", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_SIZE", "PALS_RANKID", "ALPS_APP_PE",
                           "FLUX_TASK_RANK", "JSM_NAMESPACE_SIZE"}) {
    if (std::getenv(name) != nullptr) return name;
  }
  // An interactive shell has one task.
  if (const char* tasks = std::getenv("SLURM_STEP_NUM_TASKS"); tasks != nullptr && std::string_view(tasks) != "1")
    return "SLURM_STEP_NUM_TASKS";
  return {};
}

}  // namespace lockstep
