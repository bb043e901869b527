#pragma once
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/world.hpp"
#include "lockstep/train/run_config.hpp"

namespace lockstep {

class CheckpointReader;

/// The words after the command's name.
using Args = std::vector<std::string>;

/// Options::parse() on all ranks: rank 0 reads the `--config` files and broadcasts their text. Collective.
///
/// Returns false if the arguments ask for help. errors  Error (usage): wrong options; ranks with different arguments
bool parse(World& world, Options& options, const Args& args);
/// parse() for a command with a configuration. Adds the keys of model_kind() to the options, or of the first kind if
/// there is none. Without a kind, help lists the kinds and the keys that all kinds have.
bool parse(World& world, Options& options, const Args& args, RunConfig& config);
/// The arguments with `--config configs/KIND-NAME.ini` before them, if they have `--dataset NAME` and no `--config`, and
/// that file exists.
Args with_configuration_of_dataset(Args args);
/// The model.kind of the arguments or their files, else the kind of the `--checkpoint` file, else "". Collective.
std::string model_kind(World& world, const Args& args);
/// The keys of a section that the configuration files and the command line set, in order. Collective.
std::vector<std::string> keys_of_section(World& world, const Args& args, const std::string& section);
/// The first argument that asks for help (`--help`, `-h`, `--help=FORM`), or "".
std::string help_argument(const Args& args);
/// The keys of [model] must be those of a network's training, whose configuration is `config` of the file `source`:
/// weights of another network may fit by chance.
/// files  whether configuration files were passed: their defaults then count, too
/// errors  Error (usage): lists the keys that differ, with both values
void require_same_network(const Options& given, const std::string& config, const std::string& source, bool files);
/// RunConfig::precision() of the run that has written the checkpoint.
std::string trained_precision(const CheckpointReader& checkpoint);
/// Opens and verifies a checkpoint, and checks the configuration. Without `--config` in the arguments, uses the
/// checkpoint's configuration, overridden by the keys of `given` from the command line. Sets the world's timeout.
/// Collective.
///
/// errors  Error: data if the checkpoint is not whole; usage for a wrong configuration
std::unique_ptr<CheckpointReader> open_checkpoint(World& world, const std::string& path, const Args& args,
                                                  const Options& given, RunConfig& config);

}  // namespace lockstep
