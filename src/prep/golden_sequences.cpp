#include <algorithm>
#include <cstdlib>

#include "lockstep/base/error.hpp"
#include "lockstep/base/sequence_window.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/prep/golden_checks.hpp"
#include "lockstep/prep/interactions.hpp"

namespace lockstep::prep {

namespace {

/// Integers, every one of them equal.
template <class A>
GoldenRow compare(const std::string& tensor, const std::vector<A>& ours, const std::vector<std::int64_t>& theirs) {
  GoldenRow row{tensor, 0, 0, ""};
  if (ours.size() != theirs.size()) {
    row.note = join(ours.size(), " values, the reference has ", theirs.size());
    return row;
  }
  double largest = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    row.error = std::max(row.error, static_cast<double>(std::abs(static_cast<std::int64_t>(ours[i]) - theirs[i])));
    largest = std::max(largest, static_cast<double>(std::abs(theirs[i])));
  }
  if (largest > 0) row.error /= largest;
  return row;
}

/// Rows of user, item, rating, timestamp, as if they had been read from a file.
Interactions interactions_of(const H5File& golden) {
  const auto shape = golden.info("/inputs/rows").shape;
  require_data(shape.size() == 2 && shape[1] == 4 && shape[0] > 0, "reading '/inputs/rows' of '",
               golden.path().string(), "': rows of user, item, rating, timestamp expected");
  const auto rows = golden.read<std::int64_t>("/inputs/rows");
  Interactions out;
  out.has_time = true;
  out.files = {golden.path()};
  for (std::size_t at = 0; at < rows.size(); at += 4) {
    const IdTable::Place place{0, static_cast<std::int64_t>(at / 4) + 1};
    out.user.push_back(out.users.intern(std::to_string(rows[at]), place));
    out.item.push_back(out.items.intern(std::to_string(rows[at + 1]), place));
    out.time.push_back(rows[at + 3]);
  }
  return out;
}

/// The training windows of all users that have one.
void compare_windows(const H5File& golden, const SequenceSet& set, std::vector<GoldenRow>& rows) {
  const std::int64_t maxlen = golden.int_attribute("/", "maxlen"), span = golden.int_attribute("/", "time_span");
  require_data(maxlen > 0 && maxlen <= 4096 && span > 0 && span < (1 << 18), "reading '", golden.path().string(),
               "': maxlen ", maxlen, " and time_span ", span, " are out of range");
  const auto slots = static_cast<std::size_t>(maxlen);
  const auto time_span = static_cast<std::int32_t>(span);
  std::int64_t windows = 0;
  for (std::int64_t u = 0; u < set.n_users(); ++u) {
    const auto train = static_cast<std::size_t>(set.n_train[static_cast<std::size_t>(u)]);
    const std::string group = join("/outputs/user", u + 1);
    if (!golden.is_group(group)) continue;
    ++windows;
    std::vector<std::int32_t> seq(slots), pos(slots), narrow(slots), relation(slots * slots), again(slots * slots);
    std::vector<std::int64_t> time(slots);
    training_window(set.items_of(u).first(train), set.times_of(u).first(train), seq, pos, time);
    relation_matrix(time, time_span, relation);
    narrow_times(time, time_span, narrow);
    relation_matrix(std::vector<std::int64_t>(narrow.begin(), narrow.end()), time_span, again);
    const auto with = [&](const char* name, const auto& ours, const char* note = "") {
      rows.push_back(compare(group.substr(1) + "/" + name + note, ours, golden.read<std::int64_t>(group + "/" + name)));
    };
    with("seq", seq);
    with("time_seq", time);
    with("rel", relation);
    with("rel", again, " (narrow times)");
  }
  const auto trainable = std::count_if(set.n_train.begin(), set.n_train.end(), [](std::int32_t m) { return m >= 2; });
  rows.push_back(compare("users with a window", std::vector<std::int64_t>{trainable}, {windows}));
}

}  // namespace

std::vector<GoldenRow> check_golden_sequences(const std::filesystem::path& path) {
  const H5File golden = H5File::open(path);
  SequenceOptions options;
  options.min_user = golden.int_attribute("/", "min_user");
  options.min_item = golden.int_attribute("/", "min_item");
  SequenceReport report;
  const SequenceSet set = make_sequences(interactions_of(golden), options, report);

  std::vector<GoldenRow> rows;
  const auto attribute = [&](const std::string& name, std::int64_t ours) {
    rows.push_back(compare(name, std::vector<std::int64_t>{ours}, {golden.int_attribute("/", name)}));
  };
  attribute("usernum", set.n_users());
  attribute("itemnum", set.n_items());
  attribute("time_max", set.time_max);
  const auto with = [&](const std::string& name, const auto& ours) {
    rows.push_back(compare("outputs/" + name, ours, golden.read<std::int64_t>("/outputs/" + name)));
  };
  const auto numbered = [](std::vector<std::int64_t> ids) {  // entry 0 is padding
    ids.insert(ids.begin(), 0);
    return ids;
  };
  with("raw_user_of", numbered(set.users.numbers));
  with("raw_item_of", numbered(set.items.numbers));
  with("offsets", set.offsets);
  with("items", set.item);
  with("times_scaled", set.time_scaled);
  std::vector<std::int64_t> part;
  for (std::int64_t u = 0; u < set.n_users(); ++u) {
    for (std::int64_t k = 0; k < set.length(u); ++k)
      part.push_back(std::max<std::int64_t>(0, k + 1 - set.n_train[static_cast<std::size_t>(u)]));
  }
  with("split", part);
  compare_windows(golden, set, rows);
  return rows;
}

}  // namespace lockstep::prep
