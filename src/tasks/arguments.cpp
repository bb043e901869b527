#include "lockstep/tasks/arguments.hpp"

#include <algorithm>
#include <filesystem>
#include <map>

#include "lockstep/base/log.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/io/file_kind.hpp"
#include "lockstep/io/weights.hpp"
#include "lockstep/tasks/registry.hpp"
#include "lockstep/train/ensemble.hpp"

namespace lockstep {

namespace {

std::string quoted(const Args& args) {
  std::string text;
  for (const auto& arg : args) text += (text.empty() ? "'" : " '") + arg + "'";
  return text.empty() ? "nothing" : text;
}

using Files = std::map<std::string, std::string>;

/// The text of a configuration. A pipe, as of `--config <(...)`, can be read only once.
std::string read_config(const std::string& path) {
  static Files pipes;
  if (const auto known = pipes.find(path); known != pipes.end()) return known->second;
  std::string text = Options::read_file(path);
  if (!std::filesystem::is_regular_file(path)) pipes[path] = text;
  return text;
}

/// The texts of the `--config` files, read by rank 0. Collective.
Files read_files(World& world, const Args& args) {
  Files files;
  for (const auto& path : Options::config_files(args)) {
    std::string text;
    world.together("reading the configuration", [&] {
      if (world.rank() == 0) text = read_config(path);
    });
    files[path] = world.communicator().broadcast_text(std::move(text), 0, "configuration");
  }
  return files;
}

void require_same_arguments(World& world, const Args& args) {
  if (world.size() == 1) return;
  const auto everyone = world.communicator().all_gather_text(quoted(args), "command line");
  world.together("comparing the command lines", [&] {
    require_usage(everyone[world.rank()] == everyone[0], "this rank was started with ", everyone[world.rank()],
                  ", rank 0 with ", everyone[0], "; all ranks need the same arguments");
  });
}

/// model_kind() of the header, with files = read_files(args).
std::string model_kind(World& world, const Args& args, const Files& files) {
  std::string kind;
  world.together("choosing the model", [&] {
    const auto text_of = [&](const std::string& path) { return files.at(path); };
    kind = asked_model_kind(args, text_of);
    const std::string checkpoint = Options::peek(args, {"checkpoint"}, text_of);
    if (!kind.empty() || !files.empty() || checkpoint.empty() || world.rank() != 0) return;
    const std::string first = checkpoint_files(checkpoint).front();
    try {
      kind = CheckpointReader(first).model_kind();
    } catch (const Error&) {
      const FileKind found = file_kind(first);
      const bool emulator = found == FileKind::safetensors
                                ? read_weights(first).metadata["format"] == "lockstep-emulator-model"
                                : found == FileKind::model || found == FileKind::onnx || found == FileKind::torchscript;
      if (!emulator) throw;
      kind = "emulator";
    }
  });
  return world.communicator().broadcast_text(kind, 0, "kind of model");
}

/// Adapts the help for a user who has not chosen a kind of model. form  help_argument()
void describe_kinds(Options& options, const std::string& form) {
  options.list_only(common_keys());
  if (form.ends_with("=markdown-command") || !options.lists("model.kind")) return;
  std::string list = "The kind of model decides which other options there are:";
  for (const TaskKind& kind : task_kinds()) list += join("\n- ", kind.name, ": ", kind.summary);
  options.describe(list);
  options.describe(join("Below are the options of every kind, with the defaults of ", task_kinds().front().name,
                        ". To see those of one kind, add --model.kind KIND or --config FILE to --help."));
}

bool is_yaml(const std::string& path) { return path.ends_with(".yaml") || path.ends_with(".yml"); }

/// A configuration with empty lines in place of the section `sweep`, which only `lockstep sweep` reads.
std::string without_search(const std::string& text, bool yaml) {
  std::string kept;
  bool skips = false;
  for (const std::string& line : split(text, '\n')) {
    const bool begins = yaml ? !line.empty() && line.find_first_of(" \t\r#") != 0 : trim(line).starts_with("[");
    if (begins) skips = trim(line).starts_with(yaml ? "sweep:" : "[sweep]");
    kept += skips ? "\n" : line + "\n";
  }
  return kept;
}

bool parse(World& world, Options& options, const Args& args, const Files& files) {
  bool parsed = false;
  const bool searches = options.knows("sweep.method");
  world.together("reading the options", [&] {
    parsed = options.parse(args, [&](const std::string& path) {
      return searches ? files.at(path) : without_search(files.at(path), is_yaml(path));
    });
  });
  return parsed;
}

/// Refuses keys of the command line that the command does not read. A file serves the training, too: its unread eval.*
/// keys are only noted, by commands that evaluate. A command that lists model.kind compares the other keys of [model]
/// with the checkpoint.
void refuse_unread_keys(const Options& options) {
  std::string unread;
  bool evaluates = false;
  const bool compares = options.lists("model.kind");
  for (const std::string& key : options.keys()) {
    if (options.lists(key)) {
      evaluates = evaluates || key.starts_with("eval.");
    } else if (options.origin(key) == "command line") {
      if (key == "model.kind" || (compares && key.starts_with("model."))) continue;
      options.reject(key, "this command ignores the key; --help lists those that it reads");
    } else if (key.starts_with("eval.") && options.value(key) != options.initial(key)) {
      unread += join(unread.empty() ? "" : ", ", key, " = ", options.value(key), " (", options.origin(key), ")");
    }
  }
  if (evaluates && !unread.empty())
    log::info("this command ignores ", unread, ", for evaluations during the training; --help lists what it reads");
}

/// Replaces `config` by the checkpoint's, overridden by the keys of `given` from the command line.
void take_stored_configuration(RunConfig& config, const Options& given, const CheckpointReader& checkpoint) {
  require_usage(checkpoint.model_kind() == config.model_kind, "option model.kind = ", config.model_kind,
                ": checkpoint ", checkpoint.path().string(), " holds a model of kind ", checkpoint.model_kind());
  RunConfig stored;
  Options options("lockstep eval");
  add_options(options, stored, config.model_kind);
  options.parse_ini(checkpoint.config(), checkpoint.path().string());
  std::string mine;
  for (const std::string& key : given.keys())
    if (given.given(key)) mine += ini_line(key, given.value(key));
  stored.data.stage.clear();  // these two belong to the allocation of the training
  stored.data.layout = "auto";
  if (!mine.empty()) options.parse_ini(mine, "command line");
  config = std::move(stored);
}

}  // namespace

void require_same_network(const Options& given, const std::string& config, const std::string& source, bool files) {
  const std::vector<std::string> keys = given.keys();
  if (keys.empty()) return;
  std::string list;
  for (const std::string& line : given.differences(config, source)) {
    const std::string key = line.substr(0, line.find(": "));
    const bool set = files || (std::ranges::find(keys, key) != keys.end() && given.given(key));
    if (set && key.starts_with("model.") && key != "model.kind") list += "\n  " + line;
  }
  require_usage(list.empty(), source, " is of another network:", list, "\nomit ",
                files ? "--config, or mend these keys" : "these options");
}

bool parse(World& world, Options& options, const Args& args) {
  require_same_arguments(world, args);
  return parse(world, options, args, read_files(world, args));
}

bool parse(World& world, Options& options, const Args& args, RunConfig& config) {
  require_same_arguments(world, args);
  const Files files = read_files(world, args);
  const std::string kind = model_kind(world, args, files);
  world.together("choosing the model", [&] {
    add_options(options, config, kind.empty() ? task_kinds().front().name : kind);
    if (const std::string form = help_argument(args); kind.empty() && !form.empty()) describe_kinds(options, form);
  });
  if (!parse(world, options, args, files)) return false;
  world.together("reading the options", [&] { refuse_unread_keys(options); });
  log::set_all_ranks(config.run.all_ranks_log);
  const std::string& level = config.run.log_level;
  log::set_detail(level == "warning" ? LogDetail::warnings : level == "detail" ? LogDetail::all : LogDetail::normal);
  return true;
}

Args with_configuration_of_dataset(Args args) {
  if (!Options::config_files(args).empty()) return args;
  const auto no_file = [](const std::string&) { return std::string(); };
  const std::string name = Options::peek(args, {"dataset"}, no_file), kind = asked_model_kind(args, no_file);
  const std::string file = "configs/" + kind + "-" + name + ".ini";
  if (name.empty() || kind.empty() || !std::filesystem::exists(file)) return args;
  log::info("option --dataset: the configuration is ", file);
  args.insert(args.begin(), {"--config", file});
  return args;
}

std::string model_kind(World& world, const Args& args) {
  require_same_arguments(world, args);
  return model_kind(world, args, read_files(world, args));
}

std::vector<std::string> keys_of_section(World& world, const Args& args, const std::string& section) {
  std::vector<std::string> keys;
  const auto add = [&](const std::string& key) {
    if (key.starts_with(section + ".") && std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
  };
  const Files files = read_files(world, args);
  world.together("reading the configuration", [&] {
    for (const auto& [path, text] : files)
      for (const IniEntry& entry : is_yaml(path) ? read_yaml(text, path) : read_ini(text, path)) add(entry.key);
  });
  for (const std::string& arg : args) {
    const std::string word = arg.substr(arg.starts_with("--") ? 2 : 0);
    add(word.substr(0, word.find('=')));
  }
  return keys;
}

std::string help_argument(const Args& args) {
  for (const std::string& arg : args) {
    if (arg == "--") break;
    if (arg == "--help" || arg == "-h" || arg.starts_with("--help=")) return arg;
  }
  return "";
}

std::string trained_precision(const CheckpointReader& checkpoint) {
  RunConfig stored;
  Options options("lockstep train");
  add_options(options, stored, checkpoint.model_kind());
  options.parse_ini(checkpoint.config(), checkpoint.path().string());
  return stored.precision();
}

std::unique_ptr<CheckpointReader> open_checkpoint(World& world, const std::string& path, const Args& args,
                                                  const Options& given, RunConfig& config) {
  world.configure({.timeout_s = config.dist.timeout, .check_collectives = config.dist.check_collectives});
  std::unique_ptr<CheckpointReader> reader;
  const bool verifies = world.node_rank() == 0;  // one rank of each host reads the whole file
  world.together("verifying the checkpoint", [&] {
    if (verifies) reader = std::make_unique<CheckpointReader>(path);
  });
  world.together("opening the checkpoint", [&] {
    if (!verifies) reader = std::make_unique<CheckpointReader>(path, true);
    const bool files = !Options::config_files(args).empty();
    require_same_network(given, reader->config(), "checkpoint " + path, files);
    if (!files) take_stored_configuration(config, given, *reader);
    check(config);
  });
  return reader;
}

}  // namespace lockstep
