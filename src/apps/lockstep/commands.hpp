#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep {
class CheckpointReader;
class Options;
class World;
struct RunConfig;
}  // namespace lockstep

namespace lockstep::apps {

/// The words after the command's name.
using Args = std::vector<std::string>;

/// One command of the program: run_<name>() in <name>.cpp builds its option table, parses, does the work and returns the exit code.
/// Errors are thrown; main() prints them once and turns them into exit codes.
struct Command {
  const char* name;
  const char* summary;  ///< one line, as `lockstep help` shows it
  int (*run)(World&, const Args&);
};
/// All commands, in the order of the help.
std::span<const Command> commands();

/// Options::parse() for a program on several ranks: every rank must have the same arguments, rank 0 reads the `--config` files
/// and gives their text to all, and an error is printed once. False when help was asked for. Collective.
bool parse(World& world, Options& options, const Args& args);
/// The same for a command that works with a model: adds the configuration's keys, those of the kind of model that the
/// arguments or their files name, or else that of the checkpoint that `--checkpoint` names, or else the first kind.
bool parse(World& world, Options& options, const Args& args, RunConfig& config);
/// That kind. Collective.
std::string model_kind(World& world, const Args& args);
/// Opens and verifies a checkpoint for a command that uses its weights. Without `--config` in the arguments the configuration
/// becomes the one that the checkpoint holds, with the keys that `given` got on the command line on top. It is checked.
/// The world waits as long as the given one says. Collective. errors  Error (data): not a whole checkpoint; Error (usage): the configuration
std::unique_ptr<CheckpointReader> open_checkpoint(World& world, const std::string& path, const Args& args,
                                                  const Options& given, RunConfig& config);

int run_checkpoint(World& world, const Args& args);
int run_eval(World& world, const Args& args);
int run_bench(World& world, const Args& args);
int run_help(World& world, const Args& args);
int run_plan(World& world, const Args& args);
int run_train(World& world, const Args& args);
int run_verify(World& world, const Args& args);
int run_info(World& world, const Args& args);
int run_jacobian(World& world, const Args& args);
int run_predict(World& world, const Args& args);
int run_comm_test(World& world, const Args& args);
int run_export(World& world, const Args& args);

}  // namespace lockstep::apps
