#include "lockstep/tasks/sequences/sequence_data.hpp"

#include <algorithm>
#include <cassert>
#include <functional>
#include <limits>
#include <memory>

#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/data/dataset_rows.hpp"
#include "lockstep/data/names.hpp"

namespace lockstep {
namespace {

struct Sizes {
  std::int64_t users, items, rows;
  bool has_time;
  explicit Sizes(const DatasetFile& set)
      : users(set.size("n_users", 1, kMost)),
        items(set.size("n_items", 1, kMost)),
        rows(set.size("n_interactions", 1)),
        has_time(set.size("has_time", 0, 1) != 0) {}

 private:
  static constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max() - 1;
};

/// errors  data: a user whose interactions are not divided as the format says
void check_divisions(const DatasetFile& set, std::span<const std::int64_t> offsets,
                     std::span<const std::int32_t> n_train) {
  for (std::size_t user = 0; user < n_train.size(); ++user) {
    const std::int64_t all = offsets[user + 1] - offsets[user], train = n_train[user], held_out = all - train;
    require_data(train >= 0 && (held_out == 0 || held_out == 2), set.reading("/users/n_train"), ": user ", user + 1,
                 " has ", all, " interactions, ", train, " of them for training: none or two must be held out");
  }
}

/// An array of interactions, whose rows are users. `defect(value, first)` describes what is wrong with a value, or
/// returns ""; first: whether it is the first of its user, so that no other is in front of it.
template <class T, class Defect>
DatasetRows checked_rows(const std::shared_ptr<const OpenSet>& open, const char* name,
                         std::span<const std::int64_t> offsets, const Defect& defect) {
  const auto check = [=](const std::string& dataset, std::int64_t first, std::span<const T> values) {
    std::int64_t user = std::ranges::upper_bound(offsets, first) - offsets.begin() - 1;
    for (const T& value : values) {
      const std::int64_t row = first + (&value - values.data());
      while (row >= offsets[static_cast<std::size_t>(user) + 1]) ++user;
      const std::string text = defect(&value, row == offsets[user]);
      if (!text.empty())
        throw Error(Fault::data, join(open->set.reading(dataset), ": row ", row, " (user ", user + 1, ")", text));
    }
  };
  return dataset_rows<T>(open, {{name, 0, offsets.back()}}, check, offsets);
}

/// The users that `accepts` selects, ascending.
Tensor choose_users(DataMemory& data_memory, const SequenceData& data,
                    bool (*accepts)(std::int64_t train, std::int64_t all)) {
  std::vector<std::int32_t> users;
  const auto* offsets = data.offsets.data<std::int64_t>();
  for (std::int64_t u = 0; u < data.n_users; ++u)
    if (accepts(data.n_train.data<std::int32_t>()[u], offsets[u + 1] - offsets[u]))
      users.push_back(static_cast<std::int32_t>(u));
  return data_memory.place(DType::i32, {std::ssize(users)},
                           [&](const Tensor& to) { std::copy(users.begin(), users.end(), to.data<std::int32_t>()); });
}

/// The raw ids of users or items, numbers as text.
std::vector<std::string> raw_ids(const DatasetFile& set, const std::string& dataset, std::int64_t count) {
  set.expect(dataset, {H5Type::i64, H5Type::text}, {count});
  if (set.file().info(dataset).type == H5Type::text) return set.read_text(dataset, count);
  std::vector<std::string> names;
  for (const std::int64_t id : set.read<std::int64_t>(dataset, {count})) names.push_back(std::to_string(id));
  return names;
}

std::uint64_t chain(const Tensor& t, std::uint64_t seed) { return hash64(t.raw(), t.size_bytes(), seed); }

}  // namespace

std::int64_t SequenceData::rows(std::int64_t user, Seen seen) const {
  if (seen == Seen::everything) return first_row(user + 1) - first_row(user);
  return n_train.data<std::int32_t>()[user] + (seen == Seen::validation ? 1 : 0);
}

std::span<const std::int32_t> SequenceData::items(std::int64_t user, Seen seen) const {
  return {item.row<std::int32_t>(user), static_cast<std::size_t>(rows(user, seen))};
}

std::span<const std::int64_t> SequenceData::times(std::int64_t user, Seen seen) const {
  if (!has_time()) return {};
  return {time.row<std::int64_t>(user), static_cast<std::size_t>(rows(user, seen))};
}

std::int32_t SequenceData::target(Split split, std::int64_t user) const {
  assert(split != Split::train);
  return item.row<std::int32_t>(user)[rows(user, seen_before(split))];
}

bool SequenceData::recurs(Split split, std::int64_t user) const {
  const std::span<const std::int32_t> before = items(user, seen_before(split));
  return std::ranges::find(before, target(split, user)) != before.end();
}

std::vector<std::int32_t> SequenceData::distinct_items(std::int64_t user) const {
  const std::span<const std::int32_t> all = items(user, Seen::everything);
  std::vector<std::int32_t> distinct(all.begin(), all.end());
  std::ranges::sort(distinct);
  distinct.erase(std::ranges::unique(distinct).begin(), distinct.end());
  return distinct;
}

std::vector<std::int64_t> SequenceData::training_counts() const {
  std::vector<double> counts(static_cast<std::size_t>(n_items) + 1);
  const auto add = [&](std::int64_t user) {
    for (const std::int32_t item : items(user, Seen::training)) ++counts[item];
  };
  item.sum_over(n_users, std::identity(), add, counts);
  return {counts.begin(), counts.end()};
}

SequenceData SequenceData::read(const std::filesystem::path& path, DataMemory& data_memory) {
  const auto open = std::make_shared<const OpenSet>(data_memory.open(path), kSequencesFormat);
  const H5File& file = open->file;
  const DatasetFile& set = open->set;
  const Sizes sizes(set);
  SequenceData data;
  data.path = path;
  data.n_users = sizes.users;
  data.n_items = sizes.items;
  data.offsets = place_dataset<std::int64_t>(data_memory, set, "/users/offsets", {sizes.users + 1}, [&](auto offsets) {
    set.require_offsets("/users/offsets", offsets, sizes.rows, Rise::weak);
  });
  const auto offsets = data.offsets.span<const std::int64_t>();
  data.n_train = place_dataset<std::int32_t>(data_memory, set, "/users/n_train", {sizes.users},
                                             [&](auto n_train) { check_divisions(set, offsets, n_train); });
  set.expect("/inter/item", {H5Type::i32}, {sizes.rows});
  std::vector<DatasetRows> datasets = {
      checked_rows<std::int32_t>(open, "/inter/item", offsets, [items = data.n_items](const std::int32_t* item, bool) {
        return *item >= 1 && *item <= items ? std::string() : join(" is ", *item, ": must be 1..", items);
      })};
  if (sizes.has_time) {
    set.expect("/inter/time_scaled", {H5Type::i64, H5Type::i32}, {sizes.rows});
    datasets.push_back(checked_rows<std::int64_t>(
        open, "/inter/time_scaled", offsets, [](const std::int64_t* time, bool first) -> std::string {
          if (first) return *time >= 1 ? "" : join(" is ", *time, ": must be at least 1");
          return *time >= time[-1] ? "" : join(": the time goes back from ", time[-1], " to ", *time);
        }));
  }
  const std::vector<RowArray> arrays = place_rows(data_memory, datasets);
  data.item = arrays[0];
  if (sizes.has_time) data.time = arrays[1];
  data.trained = choose_users(data_memory, data, [](std::int64_t train, std::int64_t) { return train >= 2; });
  data.evaluated =
      choose_users(data_memory, data, [](std::int64_t train, std::int64_t all) { return all > train && train >= 1; });
  data.hash = data_memory.hash([&] {
    require_data(data.trained.size() > 0, set.opening(), ": none of the ", sizes.users,
                 " users has two interactions to train on; filter less in lockstep-prep, or bring more data");
    return chain(data.n_train, chain(data.offsets, static_cast<std::uint64_t>(sizes.items)));
  });
  for (const RowArray& array : arrays) data.hash = data_memory.rows().hash(array, data.hash);
  if (file.has("/items/raw_id"))
    data.item_names = data_memory.hash([&] { return hash_of_names(raw_ids(set, "/items/raw_id", sizes.items)); });
  return data;
}

SequenceNames SequenceNames::read(const H5File& file) {
  const DatasetFile set(file, kSequencesFormat);
  const Sizes sizes(set);
  return {raw_ids(set, "/users/raw_id", sizes.users), raw_ids(set, "/items/raw_id", sizes.items)};
}

}  // namespace lockstep
