#include <algorithm>
#include <sstream>
#include <unordered_map>

#include "lockstep/base/csv.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/comm/world.hpp"
#include "lockstep/tasks/kgat/ranking_task.hpp"
#include "tasks/recommendation.hpp"

namespace lockstep {
namespace {

struct Arguments : RecommendationOptions {
  std::string user_names, item_names;
};

Options make_options(Arguments& a) {
  Options options("lockstep predict", "Recommend items to users of a knowledge graph's data set.",
                  "Users and items have their numbers in train.txt, or, with the lists that come with such data, their "
                  "raw ids. The best items exclude the user's items of all splits, or with --exclude of some splits. "
                  "The data set is that of the checkpoint's run, unless --data.path names another one, with "
                  "--other-data. The ranks share the users, on the CPU.");
  add_recommendation_options(options, a);
  options.add("user-names=FILE", &a.user_names, "",
              "user_list.txt: a header, then a raw id and a number per line; users then have raw ids");
  options.add("item-names=FILE", &a.item_names, "",
              "item_list.txt: the same for items, with an optional third field such as a name");
  options.example(
      "lockstep predict --checkpoint runs/kgat-ml1m/checkpoints/best.h5 --user 7,150 --item-names item_list.txt",
      "print ten films for each of two users");
  options.example(
      "mpirun -n 2 lockstep predict --checkpoint runs/kgat-ml1m/checkpoints/best.h5 --all-users --output top.h5",
      "ten films for every user, on two ranks");
  return options;
}

/// The raw ids and names of the numbers 0 .. count-1 in a list, or without a list the numbers.
/// errors  usage: no such file; data, naming the line: no number below `count` after the raw id; a number or an id
///         twice; a number without a line
IdTable read_list(const std::string& path, std::int64_t count) {
  if (path.empty()) return IdTable::numbers(count);
  std::ifstream in = open_text(path);
  std::vector<std::string> ids(count), names(ids.size());
  std::unordered_map<std::string, std::int64_t> line_of;
  std::string line;
  std::int64_t at = 0;
  next_line(in, line, at, path);  // the header
  while (next_line(in, line, at, path)) {
    if (trim(line).empty()) continue;
    std::istringstream fields(line);
    std::string raw, name;
    std::int64_t number = -1;
    if (line.front() != ' ' && line.front() != '\t') fields >> raw;  // else it has no id, as one of amazon-book
    require_data((fields >> number) && number >= 0 && number < count, "reading '", path, "', line ", at,
                 ": no number below ", count, " after '", raw, "'");
    if (raw.empty()) raw = join("number ", number);
    require_data(ids[number].empty(), "reading '", path, "', line ", at, ": number ", number, " is already that of '",
                 ids[number], "'");
    const auto [known, is_new] = line_of.emplace(raw, at);
    require_data(is_new, "reading '", path, "', line ", at, ": '", raw, "' is already in line ", known->second,
                 "; ids must differ, or one would stand for the other");
    std::getline(fields, name);  // of any number of words
    ids[number] = raw;
    names[number] = trim(name);
  }
  const auto missing = std::find(ids.begin(), ids.end(), "") - ids.begin();
  require_data(missing == count, "reading '", path, "': no line for number ", missing, " of 0 .. ", count - 1);
  const bool named = std::any_of(names.begin(), names.end(), [](const std::string& name) { return !name.empty(); });
  return IdTable(std::move(ids), named ? std::move(names) : std::vector<std::string>());
}

/// Refers to `task`.
Recommender make_recommender(const Arguments& a, RankingTask& task) {
  const KgData& data = task.data();
  Recommender model;
  model.data_path = data.path.string();
  model.users = read_list(a.user_names, data.users);
  model.item_ids = read_list(a.item_names, data.items);
  if (a.of_users()) model.chosen = select_users(a, model.users, a.user_names.empty() ? model.data_path : a.user_names);
  model.items = task.item_rows();
  model.untrained = task.untrained_items();
  model.states = [&task](Tape& tape, std::span<const std::int64_t> users) { return task.rows_of(tape, users); };
  model.left_out = [&data, splits = a.excluded_splits()](std::int64_t user, std::vector<std::int32_t>& items) {
    const UserItems* of[] = {&data.train, &data.valid, &data.test};
    for (int split = 0; split < splits; ++split) {
      const std::span<const std::int32_t> more = of[split]->of(user);
      items.insert(items.end(), more.begin(), more.end());
    }
    std::sort(items.begin(), items.end());
  };
  model.left_out_text = a.left_out_text();
  return model;
}

}  // namespace

int predict_kgat(World& world, const Args& args) {
  Arguments a;
  Options options = make_options(a);
  return recommend(
      world, args, options, a,
      [&] {
        check(a, options, world, {}, {a.user_names, a.item_names, a.config.data.path});
      },
      [&](Task& task) { return make_recommender(a, own<RankingTask>(task)); });
}

}  // namespace lockstep
