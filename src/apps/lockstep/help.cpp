#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>

#include "apps/lockstep/commands.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/tasks/registry.hpp"

namespace lockstep::apps {

namespace {

constexpr const char* kIntro =
    "Lockstep trains neural networks synchronously on all ranks of an MPI job. Batches and weights do not depend on "
    "the number of ranks.";

constexpr const char* kExitCodes =
    "Exit codes: 0 success, 1 failure of the program or the machine, 2 wrong usage, 3 bad data,\n"
    "85 stopped by a signal or the time limit after writing a checkpoint; the same command continues,\n"
    "86 a rank was lost, and another one has saved the state; the same command continues.\n";

std::string overview() {
  std::vector<std::vector<std::string>> list, kinds;
  for (const Command& c : commands()) list.push_back({c.name, c.summary});
  for (const TaskKind& k : task_kinds()) kinds.push_back({k.name, k.summary});
  return std::string("lockstep ") + LOCKSTEP_VERSION + ": MPI-native synchronous data-parallel trainer\n\n" +
         "usage: lockstep COMMAND [OPTION ...]\n       mpirun -n 4 lockstep COMMAND [OPTION ...]\n\nCommands\n" +
         aligned(list) + "\nKinds of model (model.kind), and what they predict\n" + aligned(kinds) + "\n" +
         aligned({{"lockstep COMMAND --help", "the options of a command, with an example"},
                  {"lockstep COMMAND --model.kind KIND --help", "those for one kind of model"},
                  {"lockstep --version", "version, compiler and libraries of this program"}}) +
         "\n" + kExitCodes;
}

/// The output of a command for `--help=form` with other arguments.
std::string help_of(World& world, const Command& command, const std::string& form, Args args = {}) {
  Options::Capture capture;
  args.push_back("--help=" + form);
  command.run(world, args);
  return capture.text;
}

constexpr const char* kMostUsed =
    "Most people set no more than these: `model.kind`, `data.path`, `run.dir`, `run.seed`, `run.device`, "
    "`run.threads`, `run.max_hours` ([run and data](#run)); `batch.size`, `optim.lr`, `schedule.name` ([batch and "
    "optimizer](#batch)); `train.epochs`, `eval.every`, `eval.best`, `stop.patience` ([training](#training)); "
    "`checkpoint.every_minutes` ([checkpoints](#checkpoints)). Keys marked as expert are for those who measure or look "
    "for a fault.";

/// The common keys, then the keys, other spellings and other defaults of each kind.
std::string configuration() {
  struct Kind {
    std::string name;
    RunConfig config;
    Options table{"lockstep train"};
  };
  const std::vector<std::string> common = common_keys();
  Kind first{task_kinds().front().name, {}};
  add_options(first.table, first.config, first.name);
  first.table.list_only(common);
  std::string text = "\n## Configuration\n\n" + wrapped(kMostUsed, 0, kMarkdownColumns) +
                     "\n\nThe common keys of all models, with the defaults of `model.kind = " + first.name + "`.\n" +
                     first.table.markdown(Options::Part::configuration) +
                     "\n### Words of other programs\n\n| word | meaning |\n| --- | --- |\n";
  auto words = first.table.spellings();
  for (const std::string& name : task_kind_names()) {
    Kind kind{name, {}};
    add_options(kind.table, kind.config, name);
    const auto its = kind.table.spellings();
    std::erase_if(words, [&](const auto& word) { return std::ranges::find(its, word) == its.end(); });
  }
  for (const auto& [word, meaning] : words)
    if (!first.table.knows(meaning)) text += "| `" + word + "` | " + meaning + " |\n";
  for (const std::string& name : task_kind_names()) {
    Kind kind{name, {}};
    add_options(kind.table, kind.config, name);
    std::vector<std::string> own = kind.table.keys();
    std::erase_if(own, [&](const std::string& key) { return std::ranges::find(common, key) != common.end(); });
    kind.table.list_only(own);
    text += "\n## Configuration of `model.kind = " + name + "`\n";
    text += kind.table.markdown(Options::Part::configuration);
    std::string spellings, others;
    for (const auto& found : kind.table.spellings())
      if (std::ranges::find(words, found) == words.end() && std::ranges::find(own, found.second) == own.end())
        spellings += (spellings.empty() ? "`" : ", `") + found.first +
                     "`: " + (kind.table.knows(found.second) ? "`" + found.second + "`" : found.second);
    if (!spellings.empty()) text += "\n" + wrapped("Further spellings. " + spellings + ".", 0, kMarkdownColumns) + "\n";
    for (const std::string& key : common) {
      if (key == "model.kind" || kind.table.initial(key) == first.table.initial(key)) continue;
      others += (others.empty() ? "" : ", ") + ("`" + key + " = " + kind.table.initial(key) + "`");
    }
    if (!others.empty())
      text += "\n" + wrapped("Defaults of common keys that differ: " + others + ".", 0, kMarkdownColumns) + "\n";
  }
  return text;
}

/// The options of `lockstep predict` for each kind. Kinds with the same options share a heading.
std::string predictions(World& world, const Command& predict) {
  std::map<std::string, std::string> names;  // by the page
  std::vector<std::string> pages;
  for (const TaskKind& kind : task_kinds()) {
    if (kind.predict == nullptr) continue;
    const std::string help = help_of(world, predict, "markdown-command", {"--model.kind", kind.name});
    std::string& sharing = names[help.substr(help.find('\n'))];
    if (sharing.empty()) pages.push_back(help.substr(help.find('\n')));
    sharing += (sharing.empty() ? "`" : ", `") + std::string(kind.name) + "`";
  }
  std::string text;
  for (const std::string& page : pages) text += "\n### `lockstep predict`: " + names[page] + page;
  return text;
}

std::string markdown(World& world) {
  std::string text =
      "# Options\n\nGenerated by `make docs` from the program's option table; `lockstep COMMAND --help` prints the "
      "same.\n\n";
  text += wrapped(kIntro, 0, kMarkdownColumns) + "\n\n";
  constexpr const char* kValues =
      "Values come from the defaults, the INI files of `--config FILE` and the command line; later ones win. "
      "`--KEY VALUE`, `--KEY=VALUE` and `--set KEY=VALUE` are equivalent, and so are `.`, `-` and `_` in names. A bool "
      "takes `--KEY`, `--no-KEY`, `--KEY false` or `--KEY=false`. Lists are written `a,b,c`; times `90`, `1.5h`, "
      "`1h30m` or `1:30:00`; sizes `4096`, `4KiB` or `4MB`. An unknown key is an error, which suggests the nearest "
      "key. Options without a dot are for the command line only. A run or checkpoint can be continued with other "
      "values of those keys that may change on resume.";
  text += wrapped(kValues, 0, kMarkdownColumns) + "\n\n";
  text += kExitCodes;
  text += configuration();
  for (const Command& c : commands()) {
    text += "\n" + help_of(world, c, "markdown-command");
    if (c.run == run_predict) text += predictions(world, c);
  }
  return text;
}

std::string manual() {
  std::string text =
      std::string(".TH \"LOCKSTEP\" 1 \"\" \"lockstep ") + LOCKSTEP_VERSION + "\" \"Lockstep\"\n" +
      ".SH NAME\nlockstep \\- MPI\\-native synchronous data\\-parallel trainer\n.SH SYNOPSIS\n"
      "lockstep COMMAND [OPTION ...]\n.PP\nmpirun \\-n 4 lockstep COMMAND [OPTION ...]\n.SH DESCRIPTION\n" +
      kIntro + "\n.SH COMMANDS\n";
  for (const Command& c : commands())
    text += std::string(".TP\n.BR lockstep\\-") + c.name + " (1)\n" + c.summary + "\n";
  return text + ".SH EXIT STATUS\n" + (kExitCodes + std::string_view("Exit codes: ").size());
}

}  // namespace

int run_help(World& world, const Args& args) {
  bool as_markdown = false;
  std::string man;
  std::vector<std::string> topic;
  Options options("lockstep help", "Print the commands, or the options of one");
  options.positional("COMMAND", &topic, "command whose options to print", 0, 1);
  options.add("markdown", &as_markdown, false, "print docs/options.md");
  options.add("man=DIR", &man, "", "write the manual pages of all commands to this directory");
  options.example("lockstep help train", "the options of `lockstep train`");
  if (!parse(world, options, args)) return 0;

  std::string text;
  if (!topic.empty()) {
    const auto all = commands();
    const auto wanted = std::find_if(all.begin(), all.end(), [&](const Command& c) { return topic[0] == c.name; });
    world.together("finding the command",
                   [&] { require_usage(wanted != all.end(), "unknown command '", topic[0], "'; see lockstep help"); });
    text = help_of(world, *wanted, "true");
  } else if (as_markdown) {
    text = markdown(world);
  } else if (man.empty()) {
    text = overview();
  } else {
    std::vector<std::pair<std::string, std::string>> pages = {{"lockstep", manual()}};
    for (const Command& c : commands()) pages.emplace_back(std::string("lockstep-") + c.name, help_of(world, c, "man"));
    world.together("writing the manual pages", [&] {
      if (world.rank() != 0) return;
      std::error_code failed;
      std::filesystem::create_directories(man, failed);
      require_usage(!failed, "option man = '", man, "': ", failed.message());
      for (const auto& [name, page] : pages) write_text_atomically(std::filesystem::path(man) / (name + ".1"), page);
    });
  }
  if (world.rank() == 0) std::cout << text;
  return 0;
}

}  // namespace lockstep::apps
