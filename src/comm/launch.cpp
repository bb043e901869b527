#include "launch.hpp"

#include <cstdlib>
#include <string_view>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/world.hpp"

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

void require_launched_together(const std::string& launcher) {
  const char* tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  // mpirun inherits the variable from the step that started its daemons. LOCKSTEP_MPI overrides the check.
  if (tasks == nullptr || std::string_view(tasks) == "1" || launcher == "OMPI_COMM_WORLD_SIZE" ||
      launcher == "LOCKSTEP_MPI")
    return;
  throw Error(Fault::usage, join("starting: this Slurm step has ", tasks,
                                 " tasks, but MPI connects only one rank: srun started them without the interface that "
                                 "this MPI needs; use srun --mpi=pmix (srun --mpi=list shows the interfaces), or "
                                 "mpirun. LOCKSTEP_MPI=never runs the tasks as separate programs"));
}

double start_limit_s() {
  const char* text = std::getenv("LOCKSTEP_START_TIMEOUT");
  if (text == nullptr || *text == '\0') return WorldOptions{}.timeout_s;
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  require_usage(*end == '\0' && seconds >= 0, "environment variable LOCKSTEP_START_TIMEOUT = '", text,
                "': must be a number of seconds >= 0");
  return seconds;
}

std::string rank_by_launcher() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (const char* number = std::getenv(name); number != nullptr) return join("rank ", number, ", ");
  return {};
}
}  // namespace lockstep
