#pragma once
#include <span>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/tasks/arguments.hpp"

namespace lockstep::apps {

/// A command of the program. run_<name>() in <name>.cpp builds its option table, parses the arguments, does the work
/// and returns the exit code. It throws errors; main() prints them once and converts them to exit codes.
struct Command {
  const char* name;
  const char* summary;  ///< one line, as `lockstep help` shows it
  int (*run)(World&, const Args&);
};
/// All commands, in the order of the help.
std::span<const Command> commands();

int run_checkpoint(World& world, const Args& args);
int run_compare(World& world, const Args& args);
int run_eval(World& world, const Args& args);
int run_bench(World& world, const Args& args);
int run_folds(World& world, const Args& args);
int run_help(World& world, const Args& args);
int run_plan(World& world, const Args& args);
int run_replay(World& world, const Args& args);
int run_status(World& world, const Args& args);
int run_sweep(World& world, const Args& args);
int run_train(World& world, const Args& args);
int run_verify(World& world, const Args& args);
int run_import(World& world, const Args& args);
int run_info(World& world, const Args& args);
int run_jacobian(World& world, const Args& args);
int run_predict(World& world, const Args& args);
int run_comm_test(World& world, const Args& args);
int run_export(World& world, const Args& args);

}  // namespace lockstep::apps
