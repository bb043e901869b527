#pragma once
#include <span>

#include "lockstep/base/text.hpp"
#include "lockstep/tasks/arguments.hpp"

namespace lockstep::apps {

/// Builds its option table, parses the arguments, does the work and returns the exit code. Throws errors; main() prints
/// them once and converts them to exit codes.
using CommandFunction = int(World& world, const Args& args);
/// A command of the program: run_<name>() in <name>.cpp.
struct Command {
  const char* name;
  const char* summary;  ///< one line, as `lockstep help` shows it
  CommandFunction* run;
};
/// All commands, in the order of the help.
std::span<const Command> commands();

CommandFunction run_bench, run_checkpoint, run_comm_test, run_compare, run_eval, run_export, run_folds, run_help,
    run_import, run_info, run_jacobian, run_plan, run_predict, run_replay, run_status, run_sweep, run_train, run_verify;

}  // namespace lockstep::apps
