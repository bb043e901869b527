#include <algorithm>
#include <map>

#include "lockstep/base/consecutive.hpp"
#include "lockstep/base/csv.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/comm/world.hpp"
#include "lockstep/tasks/sequences/sequence_data.hpp"
#include "lockstep/tasks/sequences/sequence_task.hpp"
#include "tasks/recommendation.hpp"
#include "tasks/sequences/history_file.hpp"

namespace lockstep {
namespace {

struct Arguments : RecommendationOptions {
  std::string item_names, histories, unknown;
  InteractionOptions reading;  ///< of the histories
  std::int64_t recent = 5;
};

Options make_options(Arguments& a) {
  Options options(
      "lockstep predict", "Recommend the next items to users.",
      "Users and items have the identifiers of the raw data. The model sees a user's whole history, including the "
      "held-out items. The best items exclude that history, or with --exclude a part of it; with --histories, they "
      "exclude the history of the file. A model that was evaluated with eval.repeats = keep excludes nothing, unless "
      "--exclude is given. The data set is that of the checkpoint's run, unless --data.path names another "
      "one, with --other-data and the same items. The ranks share the users, on the CPU.");
  add_recommendation_options(options, a);
  options.add(
      "histories=FILE", &a.histories, "",
      "histories of users, whether or not the data set has them: a file that lockstep-prep sequences reads, such "
      "as CSV with the columns user, item and time (tisasrec needs it), or JSON lines {\"user\": ..., \"items\": "
      "[...], \"times\": [...]}. Items are ids or names");
  options.choice("unknown", &a.unknown, "refuse", {"refuse", "skip"},
                 "events of items that the data set lacks, and users without another event: skip leaves them out");
  options.add("columns", &a.reading.columns, {},
              "histories without a header: names of all columns, as in lockstep-prep");
  options.add("user-column", &a.reading.user_column, "", "histories: column of users");
  options.add("item-column", &a.reading.item_column, "", "histories: column of items");
  options.add("time-column", &a.reading.time_column, "", "histories: column of times, - for none");
  options.choice("time-unit", &a.reading.time_unit, "s", time_units(), "histories: what times that are numbers count");
  options.add("where", &a.reading.where, {}, "histories: conditions on columns, as in lockstep-prep");
  options.add("recent", &a.recent, 5, non_negative, "newest items of the history to print");
  options.add(
      "item-names=FILE", &a.item_names, "",
      "names of items, one per line: ID::NAME or ID<tab>NAME; further fields are ignored (such as movies.dat of "
      "MovieLens)");
  options.example(
      "lockstep predict --checkpoint runs/tisasrec-ml1m/checkpoints/best.h5 --user 7,150 --item-names movies.dat",
      "print ten films for each of two users");
  options.example(
      "mpirun -n 2 lockstep predict --checkpoint runs/sasrec-ml1m/checkpoints/best.h5 --all-users --output top.csv",
      "ten films for every user, on two ranks");
  options.example(
      "lockstep predict --checkpoint runs/sasrec-ml1m/checkpoints/best.h5 --histories new.jsonl --output top.jsonl",
      "for users who are not in the data set");
  return options;
}

/// The names of these items. errors  usage: no such file; data: no separator, with the line; no name of these items
std::vector<std::string> read_names(const std::string& path, const std::vector<std::string>& items) {
  if (path.empty()) return {};
  std::map<std::string, std::string> names;
  std::ifstream in = open_text(path);
  std::string line;
  for (std::int64_t number = 0; next_line(in, line, number, path);) {
    if (line.empty()) continue;
    const std::string separator = line.find('\t') != std::string::npos ? "\t" : "::";
    const std::size_t end = line.find(separator);
    require_data(end != std::string::npos, "reading '", path, "', line ", number,
                 ": neither '::' nor a tab separates ID and name");
    const std::size_t begin = end + separator.size();
    names[line.substr(0, end)] = line.substr(begin, line.find(separator, begin) - begin);
  }
  std::vector<std::string> by_number;
  for (const std::string& item : items) by_number.push_back(names[item]);
  require_data(std::ranges::any_of(by_number, [](const std::string& name) { return !name.empty(); }), "reading '", path,
               "': none of its ids is an item of the data set ('", items.front(), "' .. '", items.back(), "')");
  return by_number;
}

/// The users with at least one interaction. errors  usage: a requested user has none
std::vector<std::int64_t> with_history(const Arguments& a, const IdTable& users, const SequenceData& data,
                                       std::vector<std::int64_t> chosen) {
  std::vector<WrittenId> empty;
  const auto gone = std::remove_if(chosen.begin(), chosen.end(), [&](std::int64_t user) {
    if (!data.items(user, Seen::everything).empty()) return false;
    empty.push_back({users.id(user), 0});
    return true;
  });
  require_usage(a.all_users || empty.empty(), "option user: ", listed(empty), ": no interactions in '",
                data.path.string(), "'");
  chosen.erase(gone, chosen.end());
  return chosen;
}

/// A model that serves the users of its data set, or those of a file of histories. It refers to `task` and `file`.
Recommender make_recommender(const Arguments& a, const SequenceTask& task, SequenceNames names, Histories& file) {
  const SequenceData& data = task.data();
  const bool from_file = !a.histories.empty();
  Recommender model;
  model.data_path = data.path.string();
  model.untrained = task.untrained_items();
  std::vector<std::string> item_names = read_names(a.item_names, names.items);
  model.item_ids = IdTable(std::move(names.items), std::move(item_names));
  if (from_file) {
    const H5File set = H5File::open(data.path);
    file = read_histories(a.histories, a.reading, model.item_ids, model.item_ids.described("items", model.data_path),
                          a.unknown == "skip" ? Unknown::skip : Unknown::refuse, task.network().arch().timed,
                          data.has_time() ? set.text_attribute("/", "time_scale") : "raw");
    if (!file.reading.empty()) model.notes.push_back("histories are read as " + file.reading);
    if (!file.times.empty()) model.notes.push_back("times of the histories: " + file.times);
    if (!file.left_out.empty()) model.notes.push_back("left out of the histories: " + file.left_out);
    model.users = IdTable(file.users);
    model.chosen = consecutive<std::int64_t>(model.users.size());
  } else {
    model.users = IdTable(std::move(names.users));
    if (a.of_users()) model.chosen = with_history(a, model.users, data, select_users(a, model.users, model.data_path));
  }
  const Tensor rows = task.network().item_table().value.slice(1, data.n_items);  // without padding
  model.items = OwnedTensor(rows.dtype(), rows.shape());
  copy(Stream(), model.items, rows);

  const auto history = [&data, &file, from_file](std::int64_t user) {
    return from_file ? file.of(user) : data.history(user, Seen::everything);
  };
  model.states = [&task, history](Tape& tape, std::span<const std::int64_t> users) {
    std::vector<UserHistory> histories;
    for (const std::int64_t user : users) histories.push_back(history(user));
    return task.states(tape, histories);
  };
  const int splits = a.excluded_splits();
  model.left_out = [&data, history, from_file, splits](std::int64_t user, std::vector<std::int32_t>& items) {
    if (splits == 0) return;
    std::span<const std::int32_t> known = history(user).items;
    if (!from_file && splits < 3) {
      const std::size_t train = data.items(user, Seen::training).size();
      known = known.first(std::min(known.size(), train + (splits == 2 ? 1 : 0)));
    }
    for (const std::int32_t item : known) items.push_back(item - 1);
    std::sort(items.begin(), items.end());
  };
  model.left_out_text = from_file && splits > 0 ? "the items of the history" : a.left_out_text();
  model.recent = [history, count = static_cast<std::size_t>(a.recent)](std::int64_t user) {
    const std::span<const std::int32_t> all = history(user).items;
    std::vector<std::int32_t> items;
    for (const std::int32_t item : all.last(std::min(all.size(), count))) items.push_back(item - 1);
    return items;
  };
  return model;
}

}  // namespace

int predict_sequence(World& world, const Args& args) {
  Arguments a;
  Options options = make_options(a);
  Histories file;
  return recommend(
      world, args, options, a,
      [&] {
        check(a, options, world, {"histories", a.histories}, {a.histories, a.item_names, a.config.data.path});
        for (const char* of : {"unknown", "columns", "user-column", "item-column", "time-column", "time-unit", "where"})
          require_usage(!options.given(of) || !a.histories.empty(), "option ", of, ": only with --histories FILE");
        require_usage(a.histories.empty() || a.excluded_splits() == 0 || a.excluded_splits() == 3,
                      "option exclude = ", a.exclude, ": the histories of a file have no splits; use all or none");
      },
      [&](Task& task) {
        const auto& model = own<SequenceTask>(task);
        if (model.repeats() == Repeats::keep && !options.given("exclude")) a.exclude = "none";
        return make_recommender(a, model, SequenceNames::read(H5File::open(a.config.data.path)), file);
      });
}

}  // namespace lockstep
