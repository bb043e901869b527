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
  // each run as if alone would overwrite each other's files.
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

void require_launched_together(const std::string& launcher, const std::string& library) {
  if (launcher == "LOCKSTEP_MPI") return;
  // The innermost launcher decides: mpirun inherits the variables of the Slurm step that started its daemons.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "FLUX_JOB_SIZE",
                           "JSM_NAMESPACE_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const char* ranks = std::getenv(name);
    if (ranks == nullptr) continue;
    if (std::string_view(ranks) == "1") return;
    throw Error(
        Fault::usage,
        join("starting: the launcher announces ", ranks, " ranks (", name, "), but MPI (", library,
             ") connects only one: the launcher belongs to another MPI library, or srun offers an interface "
             "that this library does not support; take the mpirun of this library, srun --mpi=pmix for Open MPI, or "
             "srun --mpi=pmi2 for MPICH (srun --mpi=list shows the interfaces). LOCKSTEP_MPI=never runs the "
             "ranks as separate programs"));
  }
}

double start_limit_s() {
  const char* text = std::getenv("LOCKSTEP_START_TIMEOUT");
  if (text == nullptr || *text == '\0') return WorldOptions{}.timeout_s;
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  require_usage(*end == '\0' && (seconds == 0 || seconds >= 1), "environment variable LOCKSTEP_START_TIMEOUT = '", text,
                "': must be 0, or a number of seconds >= 1");
  return seconds;
}

int launched_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (const char* number = std::getenv(name); number != nullptr) return std::atoi(number);
  return -1;
}
}  // namespace lockstep
