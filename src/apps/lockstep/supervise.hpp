#pragma once
#include <filesystem>
#include <string>

#include "lockstep/tasks/arguments.hpp"

namespace lockstep::apps {

/// Runs `lockstep train` in a process of its own, and again after a fault that left a new checkpoint. Passes a request
/// to stop on. Returns the exit code of the last start.
///
/// args      the arguments of this command; those of the supervisor are left out
/// restarts  at most this often again
/// launcher  "mpirun -n 4" starts the ranks; "": one process
int supervise(const Args& args, std::int64_t restarts, const std::string& launcher,
              const std::filesystem::path& run_dir);

}  // namespace lockstep::apps
