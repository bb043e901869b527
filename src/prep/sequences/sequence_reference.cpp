#include <algorithm>

#include "lockstep/base/error.hpp"
#include "lockstep/prep/reference.hpp"
#include "lockstep/prep/sequences/interactions.hpp"
#include "lockstep/samples/sequence_window.hpp"

namespace lockstep::prep {

namespace {

/// Makes interactions from rows of user, item, rating, timestamp.
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

/// Compares the training windows of all users that have one.
void compare_windows(const H5File& golden, const SequenceSet& set, ReferenceReport& report) {
  const std::int64_t maxlen = golden.int_attribute("/", "maxlen"), span = golden.int_attribute("/", "time_span");
  require_data(maxlen > 0 && maxlen <= 4096 && span > 0 && span < (1 << 18), "reading '", golden.path().string(),
               "': maxlen ", maxlen, " and time_span ", span, " are out of range");
  const auto time_span = static_cast<std::int32_t>(span);
  std::int64_t windows = 0;
  for (std::int64_t u = 0; u < set.n_users(); ++u) {
    const auto train = static_cast<std::size_t>(set.n_train[u]);
    const std::string group = join("/outputs/user", u + 1);
    if (!golden.is_group(group)) continue;
    ++windows;
    std::vector<std::int32_t> seq(maxlen), pos(maxlen), buckets;
    std::vector<std::int64_t> time(maxlen);
    training_window(set.items_of(u).first(train), set.times_of(u).first(train), seq, pos, time);
    for (const std::int64_t t_i : time)
      for (const std::int64_t t_j : time) buckets.push_back(relation_bucket(t_i, t_j, time_span));
    const auto with = [&](const char* name, const auto& ours) { report.compare(golden, group + "/" + name, ours, 0); };
    with("seq", seq);
    with("time_seq", time);
    with("rel", buckets);
  }
  const auto trainable = std::count_if(set.n_train.begin(), set.n_train.end(), [](std::int32_t m) { return m >= 2; });
  report.compare("users with a window", std::vector{trainable}, std::vector{windows}, 0);
}

}  // namespace

void verify_sequences(const H5File& golden, ReferenceReport& report) {
  SequenceOptions options;
  options.min_user = golden.int_attribute("/", "min_user");
  options.min_item = golden.int_attribute("/", "min_item");
  SequenceReport kept;
  const SequenceSet set = make_sequences(interactions_of(golden), options, kept);
  const auto attribute = [&](const std::string& name, std::int64_t ours) {
    report.compare(name, std::vector{ours}, std::vector{golden.int_attribute("/", name)}, 0);
  };
  attribute("usernum", set.n_users());
  attribute("itemnum", set.n_items());
  attribute("time_max", set.time_max);
  const auto with = [&](const std::string& name, const auto& ours) {
    report.compare(golden, "/outputs/" + name, ours, 0);
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
  for (std::int64_t u = 0; u < set.n_users(); ++u)
    for (std::int64_t k = 0; k < set.length(u); ++k) part.push_back(std::max<std::int64_t>(0, k + 1 - set.n_train[u]));
  with("split", part);
  compare_windows(golden, set, report);
}

}  // namespace lockstep::prep
