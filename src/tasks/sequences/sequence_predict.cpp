#include <algorithm>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <map>

#include "lockstep/base/error.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/comm/world.hpp"
#include "lockstep/data/placement.hpp"
#include "lockstep/tasks/arguments.hpp"
#include "lockstep/tasks/sequences/sequence_data.hpp"
#include "lockstep/tasks/sequences/sequence_task.hpp"
#include "lockstep/train/checkpoint.hpp"
#include "lockstep/train/run_config.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep {
namespace {

struct Arguments {
  RunConfig config;
  std::string checkpoint, item_names;
  std::vector<std::string> users;
  std::int64_t top = 10, recent = 5;
  bool other_data = false;
};

Options make_options(Arguments& a) {
  Options options(
      "lockstep predict", "Suggest the next items of users.",
      "Users and items have the identifiers of the raw data. The model sees a user's whole history, including the "
      "held-out items, and suggests only items outside it. The data set is that of the checkpoint's run, "
      "unless --data.path names another one, with --other-data and the same items.");
  options.add("checkpoint", &a.checkpoint, "", "checkpoint with the network").value_name("FILE").required();
  options.add("user", &a.users, {}, "users, by their ids in the raw data").value_name("ID,...").required();
  options.add("top", &a.top, 10, at_least(1), "items per user");
  options.add("recent", &a.recent, 5, non_negative, "newest items of the history to show");
  options
      .add("item-names", &a.item_names, "",
           "names of items, one per line: ID::NAME or ID<tab>NAME; further fields are ignored (such as movies.dat of "
           "MovieLens)")
      .value_name("FILE");
  options.add(
      "other-data", &a.other_data, false,
      "accept another data set than that of the training; its users, items or puzzles must have the same numbers");
  options.example(
      "lockstep predict --checkpoint runs/tisasrec-ml1m/checkpoints/best.h5 --user 7,150 --item-names movies.dat",
      "suggest ten films for each of two users");
  options.list_only({"model.kind", "data.path", "run.device", "run.precision", "dist.timeout", "dist.check_collectives",
                     "dist.gpu_ids"});
  return options;
}

using Names = std::map<std::string, std::string>;

/// errors  usage: no such file; data, with the line: no separator
Names read_names(const std::string& path) {
  Names names;
  if (path.empty()) return names;
  std::ifstream in(path);
  require_usage(in.good(), "opening '", path, "': no such file, or not readable");
  std::string line;
  for (std::int64_t number = 1; std::getline(in, line); ++number) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    const std::string separator = line.find("::") != std::string::npos ? "::" : "\t";
    const std::size_t end = line.find(separator);
    require_data(end != std::string::npos, "reading '", path, "', line ", number,
                 ": neither '::' nor a tab separates ID and name");
    const std::size_t begin = end + separator.size();
    names[line.substr(0, end)] = line.substr(begin, line.find(separator, begin) - begin);
  }
  return names;
}

/// Indices of the users in the data set. errors  usage: a user who is not in it
std::vector<std::int64_t> find_users(const std::vector<std::string>& wanted, const SequenceNames& names,
                                     const std::string& path) {
  std::vector<std::int64_t> found;
  for (const std::string& user : wanted) {
    const auto at = std::find(names.users.begin(), names.users.end(), user);
    require_usage(at != names.users.end(), "option user: user '", user, "' is not among the ", names.users.size(),
                  " users of ", path, " ('", names.users.front(), "' .. '", names.users.back(), "')");
    found.push_back(at - names.users.begin());
  }
  return found;
}

void print(const Arguments& a, const SequenceTask& model, const SequenceNames& raw, const Names& names,
           const std::vector<std::int64_t>& users, const std::vector<std::vector<SequenceTask::Suggestion>>& lists) {
  const auto called = [&](std::int32_t item) {
    const std::string& id = raw.items[static_cast<std::size_t>(item - 1)];
    const auto name = names.find(id);
    return name == names.end() ? id : join(name->second, " (", id, ")");
  };
  for (std::size_t u = 0; u < users.size(); ++u) {
    std::cout << "user " << a.users[u] << "\n";
    const std::span<const std::int32_t> history = model.data().items(users[u], Seen::everything);
    const std::size_t shown = std::min(history.size(), static_cast<std::size_t>(a.recent));
    for (const std::int32_t item : history.last(shown)) std::cout << "  had         " << called(item) << "\n";
    for (std::size_t i = 0; i < lists[u].size(); ++i)
      std::cout << "  " << std::setw(3) << i + 1 << std::setw(7) << std::fixed << std::setprecision(2)
                << lists[u][i].score << "  " << called(lists[u][i].item) << "\n";
  }
  std::cout << std::flush;
}

}  // namespace

int predict_sequence(World& world, const Args& args) {
  Arguments a;
  Options options = make_options(a);
  if (!parse(world, options, args, a.config)) return 0;
  const auto reader = open_checkpoint(world, a.checkpoint, args, options, a.config);
  const auto placement = make_node_placement(world);
  prepare_cpu(world, a.config);
  const auto loaded = load_task(world, a.config, *placement, &reader->file());
  SequenceNames raw;
  Names names;
  std::vector<std::int64_t> users;
  world.together("loading weights and names", [&] {
    if (!a.other_data) reader->require_data_of(*loaded, a.config.data.path);
    reader->load_average_or_weights(loaded->params());
    if (world.rank() != 0) return;  // it prints the lists: too few users to distribute
    raw = SequenceNames::read(H5File::open(a.config.data.path));
    users = find_users(a.users, raw, a.config.data.path);
    names = read_names(a.item_names);
  });
  if (world.rank() != 0) return 0;
  const auto& model = dynamic_cast<const SequenceTask&>(*loaded);
  Stream stream;
  Arena arena;
  Tape tape(stream, arena, model.network().params().dtype(), Tape::Mode::forward);
  print(a, model, raw, names, users, model.suggest(tape, users, a.top));
  return 0;
}

}  // namespace lockstep
