#include "lockstep/tasks/sequences/sequence_data.hpp"

#include <algorithm>
#include <cassert>
#include <limits>

#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/data/names.hpp"
#include "lockstep/io/dataset_file.hpp"

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

/// Reads a whole dataset of `rows` elements into placed memory.
template <class T>
Tensor place(DataMemory& data_memory, const DatasetFile& set, const std::string& dataset, std::int64_t rows) {
  return data_memory.place(dtype_of<T>::value, {rows},
                           [&](const Tensor& to) { set.read_into<T>(dataset, {rows}, to.span<T>()); });
}

/// Checks a user's rows.
/// errors  data: rows that do not match the format
void check_user(const DatasetFile& set, const SequenceData& data, std::int64_t user) {
  const auto* offsets = data.offsets.data<std::int64_t>();
  const std::int64_t begin = offsets[user], end = offsets[user + 1];
  const std::int32_t train = data.n_train.data<std::int32_t>()[user];
  const std::int64_t held_out = end - begin - train;
  require_data(train >= 0 && (held_out == 0 || held_out == 2), set.reading("/users/n_train"), ": user ", user + 1,
               " has ", end - begin, " interactions, ", train, " of them for training: none or two must be held out");
  const auto* item = data.item.data<std::int32_t>();
  for (std::int64_t row = begin; row < end; ++row) {
    if (item[row] >= 1 && item[row] <= data.n_items) continue;
    throw Error(Fault::data, join(set.reading("/inter/item"), ": row ", row, " (user ", user + 1, ") is ", item[row],
                                  ": must be 1..", data.n_items));
  }
  if (!data.has_time() || begin == end) return;
  const auto* time = data.time.data<std::int64_t>();
  require_data(time[begin] >= 1, set.reading("/inter/time_scaled"), ": row ", begin, " (user ", user + 1, ") is ",
               time[begin], ": must be at least 1");
  for (std::int64_t row = begin + 1; row < end; ++row) {
    if (time[row] >= time[row - 1]) continue;
    throw Error(Fault::data, join(set.reading("/inter/time_scaled"), ": row ", row, " (user ", user + 1,
                                  "): the time goes back from ", time[row - 1], " to ", time[row]));
  }
}

/// The users that `accepts` selects, ascending.
Tensor choose_users(DataMemory& data_memory, const SequenceData& data,
                    bool (*accepts)(std::int64_t train, std::int64_t all)) {
  std::vector<std::int32_t> users;
  const auto* offsets = data.offsets.data<std::int64_t>();
  for (std::int64_t u = 0; u < data.n_users; ++u) {
    if (accepts(data.n_train.data<std::int32_t>()[u], offsets[u + 1] - offsets[u]))
      users.push_back(static_cast<std::int32_t>(u));
  }
  return data_memory.place(DType::i32, {static_cast<std::int64_t>(users.size())},
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
  return {item.data<std::int32_t>() + first_row(user), static_cast<std::size_t>(rows(user, seen))};
}

std::span<const std::int64_t> SequenceData::times(std::int64_t user, Seen seen) const {
  if (!has_time()) return {};
  return {time.data<std::int64_t>() + first_row(user), static_cast<std::size_t>(rows(user, seen))};
}

std::int32_t SequenceData::target(Split split, std::int64_t user) const {
  assert(split != Split::train);
  return item.data<std::int32_t>()[first_row(user) + rows(user, seen_before(split))];
}

bool SequenceData::knows(std::int64_t user, std::int32_t wanted, bool held_out) const {
  const std::int32_t* begin = known.data<std::int32_t>() + first_row(user);
  const std::int32_t* end = known.data<std::int32_t>() + first_row(user + 1);
  const std::int32_t* sorted = begin + n_train.data<std::int32_t>()[user];
  return std::binary_search(begin, sorted, wanted) || (held_out && std::find(sorted, end, wanted) != end);
}

bool SequenceData::recurs(Split split, std::int64_t user) const {
  const std::span<const std::int32_t> before = items(user, seen_before(split));
  return std::ranges::find(before, target(split, user)) != before.end();
}

std::int64_t SequenceData::unknown_items(std::int64_t user) const {
  const std::span<const std::int32_t> all = items(user, Seen::everything);
  std::vector<std::int32_t> distinct(all.begin(), all.end());
  std::ranges::sort(distinct);
  return n_items - (std::ranges::unique(distinct).begin() - distinct.begin());
}

SequenceData SequenceData::read(const std::filesystem::path& path, DataMemory& data_memory) {
  const H5File file = data_memory.open(path);
  const DatasetFile set(file, kSequencesFormat);
  const Sizes sizes(set);
  SequenceData data;
  data.path = path;
  data.n_users = sizes.users;
  data.n_items = sizes.items;
  data.offsets = place<std::int64_t>(data_memory, set, "/users/offsets", sizes.users + 1);
  data.n_train = place<std::int32_t>(data_memory, set, "/users/n_train", sizes.users);
  data.item = place<std::int32_t>(data_memory, set, "/inter/item", sizes.rows);
  if (sizes.has_time) data.time = place<std::int64_t>(data_memory, set, "/inter/time_scaled", sizes.rows);
  data.known = data_memory.place(DType::i32, {sizes.rows}, [&](const Tensor& to) {
    const auto* offsets = data.offsets.data<std::int64_t>();
    set.require_offsets("/users/offsets", data.offsets.span<const std::int64_t>(), sizes.rows, Rise::weak);
    const auto* item = data.item.data<std::int32_t>();
    std::copy(item, item + sizes.rows, to.data<std::int32_t>());
    for (std::int64_t u = 0; u < sizes.users; ++u) {
      check_user(set, data, u);
      std::int32_t* first = to.data<std::int32_t>() + offsets[u];
      std::sort(first, first + data.n_train.data<std::int32_t>()[u]);
    }
  });
  data.trained = choose_users(data_memory, data, [](std::int64_t train, std::int64_t) { return train >= 2; });
  data.evaluated =
      choose_users(data_memory, data, [](std::int64_t train, std::int64_t all) { return all > train && train >= 1; });
  data.hash = data_memory.hash([&] {
    require_data(data.trained.size() > 0, set.opening(), ": none of the ", sizes.users,
                 " users has two interactions to train on; filter less in lockstep-prep, or bring more data");
    const std::uint64_t hash =
        chain(data.item, chain(data.n_train, chain(data.offsets, static_cast<std::uint64_t>(sizes.items))));
    return data.has_time() ? chain(data.time, hash) : hash;
  });
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
