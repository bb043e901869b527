#include <algorithm>
#include <charconv>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <map>
#include <sstream>

#include "lockstep/base/error.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/comm/world.hpp"
#include "lockstep/data/placement.hpp"
#include "lockstep/tasks/arguments.hpp"
#include "lockstep/tasks/kgat/ranking_task.hpp"
#include "lockstep/train/checkpoint.hpp"
#include "lockstep/train/run_config.hpp"
#include "lockstep/train/task.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep {
namespace {

struct Arguments {
  RunConfig config;
  std::string checkpoint, user_names, item_names;
  std::vector<std::string> users;
  std::int64_t top = 10;
  bool other_data = false;
};

Options make_options(Arguments& a) {
  Options options(
      "lockstep predict", "Suggest items to users of a knowledge graph's data set.",
      "Users and items have their numbers in train.txt, or, with the lists that come with such data, their "
      "raw ids. Training and validation items are not suggested. The data set is that of the checkpoint's run unless "
      "--data.path names another, with --other-data.");
  options.add("checkpoint", &a.checkpoint, "", "checkpoint with the weights").value_name("FILE").required();
  options.add("user", &a.users, {}, "users").value_name("ID,...").required();
  options.add("top", &a.top, 10, at_least(1), "items per user");
  options
      .add("user-names", &a.user_names, "",
           "user_list.txt: a header, then a raw id and a number per line; --user then takes raw ids")
      .value_name("FILE");
  options
      .add("item-names", &a.item_names, "",
           "item_list.txt: the same for items, with an optional third field such as a name; both are printed")
      .value_name("FILE");
  options.add(
      "other-data", &a.other_data, false,
      "accept another data set than that of the training; its users, items or puzzles must have the same numbers");
  options.example(
      "lockstep predict --checkpoint runs/kgat-ml1m/checkpoints/best.h5 --user 7,150 --item-names item_list.txt",
      "ten films for each of two users");
  options.list_only({"model.kind", "data.path", "run.device", "run.precision", "dist.timeout", "dist.check_collectives",
                     "dist.gpu_ids"});
  return options;
}

/// The names of numbers 0 .. count-1 in a list.
struct Names {
  std::map<std::string, std::int64_t> number;  ///< by raw id
  std::map<std::int64_t, std::string> text;    ///< raw id and the third field
};

/// errors  usage: no such file; data, naming the line: no number below `count` after the raw id
Names read_list(const std::string& path, std::int64_t count) {
  Names names;
  if (path.empty()) return names;
  std::ifstream in(path);
  require_usage(in.good(), "opening '", path, "': no such file, or not readable");
  std::string line;
  std::getline(in, line);
  for (std::int64_t at = 2; std::getline(in, line); ++at) {
    std::istringstream fields(line);
    std::string raw, more;
    std::int64_t number = -1;
    if (!(fields >> raw)) continue;
    require_data((fields >> number) && number >= 0 && number < count, "reading '", path, "', line ", at,
                 ": no number below ", count, " after '", raw, "'");
    fields >> more;
    names.number[raw] = number;
    names.text[number] = more.empty() ? raw : join(raw, "  ", more);
  }
  return names;
}

/// errors  usage: a user that the data set does not have
std::vector<std::int64_t> find_users(const Arguments& a, const Names& names, const KgData& data) {
  std::vector<std::int64_t> users;
  for (const std::string& user : a.users) {
    std::int64_t number = -1;
    if (a.user_names.empty()) {
      const auto [end, error] = std::from_chars(user.data(), user.data() + user.size(), number);
      require_usage(error == std::errc() && end == user.data() + user.size() && number >= 0 && number < data.users,
                    "option user: '", user, "' is none of the ", data.users, " users of ", data.path.string(),
                    ", 0 .. ", data.users - 1);
    } else {
      const auto found = names.number.find(user);
      require_usage(found != names.number.end(), "option user: '", user, "' is not among the ", names.number.size(),
                    " users of ", a.user_names);
      number = found->second;
    }
    users.push_back(number);
  }
  return users;
}

}  // namespace

int predict_kgat(World& world, const Args& args) {
  Arguments a;
  Options options = make_options(a);
  if (!parse(world, options, args, a.config)) return 0;
  const auto reader = open_checkpoint(world, a.checkpoint, args, options, a.config);
  prepare_cpu(world, a.config);
  const auto placement = make_node_placement(world);
  const auto model = load_task(world, a.config, *placement, &reader->file());
  auto& ranker = dynamic_cast<RankingTask&>(*model);
  Names items;
  std::vector<std::int64_t> users;
  world.together("loading weights and lists", [&] {
    if (!a.other_data) reader->require_data_of(*model, a.config.data.path);
    reader->load_average_or_weights(model->params());
    items = read_list(a.item_names, ranker.data().items);
    users = find_users(a, read_list(a.user_names, ranker.data().users), ranker.data());
  });
  if (world.rank() != 0) return 0;  // too little work to share
  const auto lists = ranker.suggest(users, a.top);
  for (std::size_t u = 0; u < users.size(); ++u) {
    std::cout << "user " << a.users[u] << ", "
              << ranker.data().train.of(users[u]).size() + ranker.data().valid.of(users[u]).size() << " items known\n";
    for (std::size_t i = 0; i < lists[u].size(); ++i) {
      const auto name = items.text.find(lists[u][i].item);
      std::cout << "  " << std::setw(3) << i + 1 << std::setw(9) << std::fixed << std::setprecision(3)
                << lists[u][i].score << "  " << (name == items.text.end() ? join(lists[u][i].item) : name->second)
                << "\n";
    }
  }
  std::cout << std::flush;
  return 0;
}

}  // namespace lockstep
