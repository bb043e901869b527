#include "lockstep/prep/sequences/sequence_set.hpp"

#include <algorithm>
#include <limits>

#include "lockstep/base/error.hpp"
#include "lockstep/prep/sequences/gap_sessions.hpp"
#include "prep/set_file.hpp"

namespace lockstep::prep {

namespace {
constexpr std::int64_t kChunkRows = 65536, kContiguousBelow = std::int64_t{1} << 20;
constexpr std::int64_t kMost =
    std::numeric_limits<std::int32_t>::max() - 1;  ///< users or items; tables have n + 1 rows
}  // namespace

std::string RawIds::name(std::int64_t dense) const {
  const auto at = static_cast<std::size_t>(dense - 1);
  return is_text ? texts[at] : std::to_string(numbers[at]);
}

std::int64_t SequenceSet::length(std::int64_t user) const { return offsets[user + 1] - offsets[user]; }

std::span<const std::int32_t> SequenceSet::items_of(std::int64_t user) const {
  return std::span(item).subspan(offsets[user], length(user));
}

std::span<const std::int64_t> SequenceSet::times_of(std::int64_t user) const {
  if (!has_time()) return {};
  return std::span(time_scaled).subspan(offsets[user], length(user));
}

void derive(SequenceSet& set, std::int64_t n_items) {
  const std::int64_t users = std::ssize(set.offsets) - 1;
  set.n_train.assign(users, 0);
  set.item_count.assign(n_items, 0);
  set.time_scaled.assign(set.time_raw.size(), 0);
  set.time_max = 0;
  for (std::int64_t u = 0; u < users; ++u) {
    const std::int64_t first = set.offsets[u], m = set.length(u);
    // All but two interactions train under leave-one-out, or all if there are fewer than `min_split`.
    const std::int64_t train = m >= set.min_split ? m - 2 : m;
    set.n_train[u] = static_cast<std::int32_t>(train);
    for (std::int64_t k = first; k < first + train; ++k) ++set.item_count[set.item[k] - 1];
    if (!set.has_time() || m == 0) continue;
    scale_times(std::span(set.time_raw).subspan(first, m), set.time_scale,
                std::span(set.time_scaled).subspan(first, m));
    set.time_max = std::max(set.time_max, set.time_scaled[first + m - 1]);
  }
}

namespace {
void fields(SetFile& io, SequenceSet& set) {
  std::int64_t users = set.n_users(), items = set.n_items(), n = set.rows(), timed = set.has_time();
  io.size("n_users", users, 1, kMost);
  io.size("n_items", items, 1, kMost);
  io.size("n_interactions", n, 1);
  io.size("has_time", timed, 0, 1);
  io.attribute("min_user", set.min_user);
  io.attribute("min_item", set.min_item);
  io.attribute("min_split", set.min_split);
  io.attribute("keep_ids", set.keep_ids);
  io.attribute("time_scale", set.time_scale);
  io.attribute("time_max", set.time_max);
  io.attribute("source_name", set.source_name);
  io.attribute("source_sha256", set.source_sha256);

  if (n >= kContiguousBelow) io.storage({.rows = kChunkRows, .deflate = 4});
  const auto ids = [&](const std::string& dataset, RawIds& raw, std::int64_t count) {
    if (io.reads()) {
      io.in().expect(dataset, {H5Type::i64, H5Type::text}, {count});
      raw.is_text = io.in().file().info(dataset).type == H5Type::text;
    }
    if (raw.is_text)
      io.text(dataset, raw.texts, count);
    else
      io.array(dataset, raw.numbers, {count});
  };
  io.offsets("/users/offsets", set.offsets, users + 1, n, Rise::weak);
  io.array("/users/n_train", set.n_train, {users});
  ids("/users/raw_id", set.users, users);
  ids("/items/raw_id", set.items, items);
  io.array("/items/count", set.item_count, {items});
  io.array("/inter/item", set.item, {n}, {{1, items}});
  if (timed == 1) {
    io.array("/inter/time_raw", set.time_raw, {n});
    io.array("/inter/time_scaled", set.time_scaled, {n});
  }
  if (!io.part("/synth", set.rule.has_value())) return;
  if (io.reads()) set.rule.emplace();
  io.array("/synth/category", set.rule->category, {items});
  io.array("/synth/cluster", set.rule->cluster, {items});
  io.attribute("/synth/categories", set.rule->categories);
  io.attribute("/synth/clusters", set.rule->clusters);
  io.attribute("/synth/unit_s", set.rule->unit_s);
  io.attribute("/synth/noise", set.rule->noise);
  io.attribute("/synth/seed", set.rule->seed);
  if (io.reads()) return;
  io.out().set_attribute("/synth", "time_span", 2 * set.rule->categories - 1);
  for (const auto& [name, value] : ideal_attributes(set)) io.out().set_attribute("/synth", name, value);
}
}  // namespace

void write_sequence_set(const std::filesystem::path& path, const SequenceSet& set) {
  require(set.n_users() <= kMost && set.n_items() <= kMost, "writing '", path.string(), "': ", set.n_users(),
          " users and ", set.n_items(), " items do not fit 32 bits");
  write_set(path, kSequencesFormat, set, fields);
}
SequenceSet read_sequence_set(const H5File& file, Problems* problems) {
  return read_set(file, kSequencesFormat, problems, fields);
}

}  // namespace lockstep::prep
