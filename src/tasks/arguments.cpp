#include "lockstep/tasks/arguments.hpp"

#include <map>

#include "lockstep/base/error.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/comm/world.hpp"
#include "lockstep/tasks/registry.hpp"
#include "lockstep/train/checkpoint.hpp"
#include "lockstep/train/run_config.hpp"

namespace lockstep {

namespace {

std::string quoted(const Args& args) {
  std::string text;
  for (const auto& arg : args) text += (text.empty() ? "'" : " '") + arg + "'";
  return text.empty() ? "nothing" : text;
}

using Files = std::map<std::string, std::string>;

/// The texts of the `--config` files, read by rank 0. Collective.
Files read_files(World& world, const Args& args) {
  Files files;
  for (const auto& path : Options::config_files(args)) {
    std::string text;
    world.together("reading the configuration", [&] {
      if (world.rank() == 0) text = Options::read_file(path);
    });
    files[path] = world.communicator().broadcast_text(std::move(text), 0, "configuration");
  }
  return files;
}

void require_same_arguments(World& world, const Args& args) {
  if (world.size() == 1) return;
  const auto everyone = world.communicator().all_gather_text(quoted(args), "command line");
  world.together("comparing the command lines", [&] {
    require_usage(everyone[static_cast<std::size_t>(world.rank())] == everyone[0], "this rank was started with ",
                  everyone[static_cast<std::size_t>(world.rank())], ", rank 0 with ", everyone[0],
                  "; all ranks need the same arguments");
  });
}

/// As model_kind() of the header. files: read_files(args).
std::string model_kind(World& world, const Args& args, const Files& files) {
  std::string kind;
  world.together("choosing the model", [&] {
    const auto text_of = [&](const std::string& path) { return files.at(path); };
    kind = asked_model_kind(args, text_of);
    const std::string checkpoint = Options::peek(args, {"checkpoint"}, text_of);
    if (!kind.empty() || !files.empty() || checkpoint.empty() || world.rank() != 0) return;
    try {
      kind = CheckpointReader(checkpoint).model_kind();
    } catch (const Error&) {
      // The command itself opens the file and reports what is wrong with it.
    }
  });
  kind = world.communicator().broadcast_text(kind, 0, "kind of model");
  return kind.empty() ? task_kinds().front().name : kind;
}

bool parse(World& world, Options& options, const Args& args, const Files& files) {
  bool parsed = false;
  world.together("reading the options",
                 [&] { parsed = options.parse(args, [&](const std::string& path) { return files.at(path); }); });
  return parsed;
}

/// Replaces `config` by that of the checkpoint, overridden by the keys that `given` has from the command line.
void take_stored_configuration(RunConfig& config, const Options& given, const CheckpointReader& checkpoint) {
  RunConfig stored;
  Options options("lockstep eval");
  add_options(options, stored, config.model_kind);
  options.parse_ini(checkpoint.config(), checkpoint.path().string());
  std::string mine;
  for (const std::string& key : given.keys()) {
    if (given.given(key)) mine += key + " = " + given.value(key) + "\n";
  }
  if (!mine.empty()) options.parse_ini(mine, "command line");
  config = std::move(stored);
}

}  // namespace

bool parse(World& world, Options& options, const Args& args) {
  require_same_arguments(world, args);
  return parse(world, options, args, read_files(world, args));
}

bool parse(World& world, Options& options, const Args& args, RunConfig& config) {
  require_same_arguments(world, args);
  const Files files = read_files(world, args);
  const std::string kind = model_kind(world, args, files);
  world.together("choosing the model", [&] { add_options(options, config, kind); });
  return parse(world, options, args, files);
}

std::string model_kind(World& world, const Args& args) {
  require_same_arguments(world, args);
  return model_kind(world, args, read_files(world, args));
}

std::unique_ptr<CheckpointReader> open_checkpoint(World& world, const std::string& path, const Args& args,
                                                  const Options& given, RunConfig& config) {
  world.configure({.timeout_s = config.dist.timeout, .check_collectives = config.dist.check_collectives});
  std::unique_ptr<CheckpointReader> reader;
  world.together("opening the checkpoint", [&] {
    reader = std::make_unique<CheckpointReader>(path);
    if (Options::config_files(args).empty()) take_stored_configuration(config, given, *reader);
    check(config);
  });
  return reader;
}

}  // namespace lockstep
