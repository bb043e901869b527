#include "lockstep/data/sequence_data.hpp"

#include <algorithm>
#include <limits>

#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/io/h5.hpp"

namespace lockstep {
namespace {

constexpr const char* kFormat = "lockstep-seqrec";
constexpr std::int64_t kVersion = 1;

std::string opening(const H5File& file) { return join("opening data set '", file.path().string(), "'"); }
std::string place_of(const H5File& file, const std::string& dataset) {
  return join("reading dataset '", dataset, "' of '", file.path().string(), "'");
}

struct Sizes {
  std::int64_t users, items, rows;
  bool has_time;
};

Sizes read_header(const H5File& file) {
  const auto need = [&](const char* attribute) {
    require_data(file.has_attribute("/", attribute), opening(file), ": no attribute '", attribute,
                 "'; rebuild it with lockstep-prep");
  };
  need("format");
  const std::string format = file.text_attribute("/", "format");
  require_data(format == kFormat, opening(file), ": its format is '", format, "', expected '", kFormat,
               "'; make one with lockstep-prep sequences");
  for (const char* attribute : {"version", "n_users", "n_items", "n_interactions", "has_time"}) need(attribute);
  const std::int64_t version = file.int_attribute("/", "version");
  require_data(version == kVersion, opening(file), ": version ", version, ", this program reads version ", kVersion,
               "; rebuild it with lockstep-prep");
  const Sizes sizes = {file.int_attribute("/", "n_users"), file.int_attribute("/", "n_items"),
                       file.int_attribute("/", "n_interactions"), file.int_attribute("/", "has_time") != 0};
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max() - 1;
  require_data(sizes.users >= 1 && sizes.users <= kMost && sizes.items >= 1 && sizes.items <= kMost && sizes.rows >= 1,
               opening(file), ": n_users = ", sizes.users, ", n_items = ", sizes.items,
               ", n_interactions = ", sizes.rows, ": each must be at least 1, users and items below 2^31");
  return sizes;
}

/// A whole dataset of this many elements in its place.
template <class T>
Tensor place(Placement& placement, const H5File& file, const std::string& dataset, std::int64_t rows) {
  return placement.place(dtype_of<T>::value, {rows}, [&](const Tensor& to) {
    require_data(file.has(dataset), "opening dataset '", dataset, "' of '", file.path().string(),
                 "': no such dataset; rebuild it with lockstep-prep");
    const H5Info info = file.info(dataset);
    require_data(info.type == h5_type_of<T>::value, place_of(file, dataset), ": elements are ", name(info.type),
                 ", expected ", name(h5_type_of<T>::value), "; rebuild it with lockstep-prep");
    file.read_into<T>(dataset, to.span<T>(), {rows});
  });
}

/// Throws what is wrong with a user's rows.
void check_user(const H5File& file, const SequenceData& data, std::int64_t user, std::int64_t rows) {
  const auto* offsets = data.offsets.data<std::int64_t>();
  const std::int64_t begin = offsets[user], end = offsets[user + 1];
  require_data(begin >= 0 && begin <= end && end <= rows, place_of(file, "/users/offsets"), ": user ", user + 1,
               " has rows ", begin, " to ", end, " of ", rows);
  const std::int32_t train = data.n_train.data<std::int32_t>()[user];
  const std::int64_t held_out = end - begin - train;
  require_data(train >= 0 && (held_out == 0 || held_out == 2), place_of(file, "/users/n_train"), ": user ", user + 1,
               " has ", end - begin, " interactions, ", train, " of them for training: none or two must be held out");
  const auto* item = data.item.data<std::int32_t>();
  for (std::int64_t row = begin; row < end; ++row) {
    if (item[row] >= 1 && item[row] <= data.n_items) continue;
    throw Error(Fault::data, join(place_of(file, "/inter/item"), ": row ", row, " (user ", user + 1, ") is ", item[row],
                                  ": must be 1..", data.n_items));
  }
  if (!data.has_time() || begin == end) return;
  const auto* time = data.time.data<std::int64_t>();
  require_data(time[begin] >= 1, place_of(file, "/inter/time_scaled"), ": row ", begin, " (user ", user + 1, ") is ",
               time[begin], ": must be at least 1");
  for (std::int64_t row = begin + 1; row < end; ++row) {
    if (time[row] >= time[row - 1]) continue;
    throw Error(Fault::data, join(place_of(file, "/inter/time_scaled"), ": row ", row, " (user ", user + 1,
                                  "): the time goes back from ", time[row - 1], " to ", time[row]));
  }
}

/// The users whom `accepts` accepts, in order.
Tensor choose_users(Placement& placement, const SequenceData& data,
                    bool (*accepts)(std::int64_t train, std::int64_t all)) {
  std::vector<std::int32_t> users;
  const auto* offsets = data.offsets.data<std::int64_t>();
  for (std::int64_t u = 0; u < data.n_users; ++u) {
    if (accepts(data.n_train.data<std::int32_t>()[u], offsets[u + 1] - offsets[u]))
      users.push_back(static_cast<std::int32_t>(u));
  }
  return placement.place(DType::i32, {static_cast<std::int64_t>(users.size())},
                         [&](const Tensor& to) { std::copy(users.begin(), users.end(), to.data<std::int32_t>()); });
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
  return item.data<std::int32_t>()[first_row(user) + rows(user, seen_before(split))];
}

bool SequenceData::knows(std::int64_t user, std::int32_t wanted, bool held_out) const {
  const std::int32_t* begin = known.data<std::int32_t>() + first_row(user);
  const std::int32_t* end = known.data<std::int32_t>() + first_row(user + 1);
  const std::int32_t* sorted = begin + n_train.data<std::int32_t>()[user];
  return std::binary_search(begin, sorted, wanted) || (held_out && std::find(sorted, end, wanted) != end);
}

SequenceData SequenceData::read(const std::filesystem::path& path, Placement& placement) {
  const H5File file = H5File::open(path);
  const Sizes sizes = read_header(file);
  SequenceData data;
  data.path = path;
  data.n_users = sizes.users, data.n_items = sizes.items;
  data.offsets = place<std::int64_t>(placement, file, "/users/offsets", sizes.users + 1);
  data.n_train = place<std::int32_t>(placement, file, "/users/n_train", sizes.users);
  data.item = place<std::int32_t>(placement, file, "/inter/item", sizes.rows);
  if (sizes.has_time) data.time = place<std::int64_t>(placement, file, "/inter/time_scaled", sizes.rows);
  data.known = placement.place(DType::i32, {sizes.rows}, [&](const Tensor& to) {
    const auto* offsets = data.offsets.data<std::int64_t>();
    require_data(offsets[0] == 0 && offsets[sizes.users] == sizes.rows, place_of(file, "/users/offsets"),
                 ": they go from ", offsets[0], " to ", offsets[sizes.users], ", expected 0 to ", sizes.rows);
    const auto* item = data.item.data<std::int32_t>();
    std::copy(item, item + sizes.rows, to.data<std::int32_t>());
    for (std::int64_t u = 0; u < sizes.users; ++u) {
      check_user(file, data, u, sizes.rows);
      std::int32_t* first = to.data<std::int32_t>() + offsets[u];
      std::sort(first, first + data.n_train.data<std::int32_t>()[u]);
    }
  });
  data.trained = choose_users(placement, data, [](std::int64_t train, std::int64_t) { return train >= 2; });
  data.judged =
      choose_users(placement, data, [](std::int64_t train, std::int64_t all) { return all > train && train >= 1; });
  const Tensor summary = placement.place(DType::i64, {1}, [&](const Tensor& to) {
    require_data(data.trained.size() > 0, opening(file), ": none of the ", sizes.users,
                 " users has two interactions to train on; filter less in lockstep-prep, or bring more data");
    std::uint64_t hash =
        chain(data.item, chain(data.n_train, chain(data.offsets, static_cast<std::uint64_t>(sizes.items))));
    if (data.has_time()) hash = chain(data.time, hash);
    *to.data<std::int64_t>() = static_cast<std::int64_t>(hash);
  });
  data.hash = static_cast<std::uint64_t>(*summary.data<std::int64_t>());
  return data;
}

SequenceNames SequenceNames::read(const H5File& file) {
  const Sizes sizes = read_header(file);
  const auto names_of = [&](const std::string& dataset, std::int64_t count) {
    require_data(file.has(dataset), "opening dataset '", dataset, "' of '", file.path().string(),
                 "': no such dataset; rebuild it with lockstep-prep");
    std::vector<std::string> names;
    if (file.info(dataset).type == H5Type::text) {
      names = file.read_text(dataset);
    } else {
      for (const std::int64_t id : file.read<std::int64_t>(dataset)) names.push_back(std::to_string(id));
    }
    require_data(static_cast<std::int64_t>(names.size()) == count, place_of(file, dataset), ": ", names.size(),
                 " names, expected ", count);
    return names;
  };
  return {names_of("/users/raw_id", sizes.users), names_of("/items/raw_id", sizes.items)};
}

}  // namespace lockstep
