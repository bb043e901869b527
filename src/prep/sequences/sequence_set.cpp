#include "lockstep/prep/sequences/sequence_set.hpp"

#include <algorithm>
#include <limits>

#include "lockstep/base/error.hpp"
#include "lockstep/io/dataset_file.hpp"
#include "lockstep/prep/sequences/gap_sessions.hpp"

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

std::int64_t SequenceSet::length(std::int64_t user) const {
  const auto u = static_cast<std::size_t>(user);
  return offsets[u + 1] - offsets[u];
}

std::span<const std::int32_t> SequenceSet::items_of(std::int64_t user) const {
  return std::span(item).subspan(static_cast<std::size_t>(offsets[static_cast<std::size_t>(user)]),
                                 static_cast<std::size_t>(length(user)));
}

std::span<const std::int64_t> SequenceSet::times_of(std::int64_t user) const {
  if (!has_time()) return {};
  return std::span(time_scaled)
      .subspan(static_cast<std::size_t>(offsets[static_cast<std::size_t>(user)]),
               static_cast<std::size_t>(length(user)));
}

std::int64_t train_length(std::int64_t interactions, std::int64_t min_split) {
  return interactions >= min_split ? interactions - 2 : interactions;
}

void derive(SequenceSet& set, std::int64_t n_items) {
  const std::size_t users = set.offsets.size() - 1;
  set.n_train.assign(users, 0);
  set.item_count.assign(static_cast<std::size_t>(n_items), 0);
  set.time_scaled.assign(set.time_raw.size(), 0);
  set.time_max = 0;
  for (std::size_t u = 0; u < users; ++u) {
    const auto first = static_cast<std::size_t>(set.offsets[u]),
               m = static_cast<std::size_t>(set.offsets[u + 1]) - first;
    const std::int64_t train = train_length(static_cast<std::int64_t>(m), set.min_split);
    set.n_train[u] = static_cast<std::int32_t>(train);
    for (std::size_t k = first; k < first + static_cast<std::size_t>(train); ++k)
      ++set.item_count[static_cast<std::size_t>(set.item[k] - 1)];
    if (!set.has_time() || m == 0) continue;
    scale_times(std::span(set.time_raw).subspan(first, m), set.time_scale,
                std::span(set.time_scaled).subspan(first, m));
    set.time_max = std::max(set.time_max, set.time_scaled[first + m - 1]);
  }
}

namespace {
void write_ids(H5File& file, const std::string& name, const RawIds& ids, const H5Layout& layout) {
  if (ids.is_text) {
    file.write_text(name, ids.texts);
  } else {
    file.write<std::int64_t>(name, ids.numbers, {static_cast<std::int64_t>(ids.numbers.size())}, layout);
  }
}

void write_rule(H5File& file, const SequenceSet& set, const H5Layout& layout) {
  const GapRule& rule = *set.rule;
  file.write<std::int32_t>("/synth/category", rule.category, {set.n_items()}, layout);
  file.write<std::int32_t>("/synth/cluster", rule.cluster, {set.n_items()}, layout);
  file.set_attribute("/synth", "categories", rule.categories);
  file.set_attribute("/synth", "clusters", rule.clusters);
  file.set_attribute("/synth", "unit_s", rule.unit_s);
  file.set_attribute("/synth", "noise", rule.noise);
  file.set_attribute("/synth", "seed", static_cast<std::int64_t>(rule.seed));
  file.set_attribute("/synth", "time_span", 2 * rule.categories - 1);
  for (const auto which : {HeldOut::valid, HeldOut::test}) {
    const std::string prefix = which == HeldOut::valid ? "ideal_valid_" : "ideal_test_";
    for (const auto& [name, value] : ideal_rates(set, which).named())
      file.set_attribute("/synth", prefix + name, value);
  }
}
}  // namespace

void write_sequence_set(const std::filesystem::path& path, const SequenceSet& set) {
  write_dataset(path, kSequencesFormat, set.notes, [&](H5File& file) {
    const std::int64_t users = set.n_users(), items = set.n_items(), n = set.rows();
    require(users <= kMost && items <= kMost, "writing '", path.string(), "': ", users, " users and ", items,
            " items do not fit 32 bits");
    const H5Layout layout = n < kContiguousBelow ? H5Layout{} : H5Layout{{kChunkRows}, 4};
    file.write<std::int64_t>("/users/offsets", set.offsets, {users + 1}, layout);
    file.write<std::int32_t>("/users/n_train", set.n_train, {users}, layout);
    write_ids(file, "/users/raw_id", set.users, layout);
    write_ids(file, "/items/raw_id", set.items, layout);
    file.write<std::int32_t>("/items/count", set.item_count, {items}, layout);
    file.write<std::int32_t>("/inter/item", set.item, {n}, layout);
    if (set.has_time()) {
      file.write<std::int64_t>("/inter/time_raw", set.time_raw, {n}, layout);
      file.write<std::int64_t>("/inter/time_scaled", set.time_scaled, {n}, layout);
    }
    if (set.rule) write_rule(file, set, layout);
    file.set_attribute("/", "n_users", users);
    file.set_attribute("/", "n_items", items);
    file.set_attribute("/", "n_interactions", n);
    file.set_attribute("/", "has_time", std::int64_t{set.has_time()});
    file.set_attribute("/", "min_user", set.min_user);
    file.set_attribute("/", "min_item", set.min_item);
    file.set_attribute("/", "min_split", set.min_split);
    file.set_attribute("/", "keep_ids", std::int64_t{set.keep_ids});
    file.set_attribute("/", "time_scale", set.time_scale);
    file.set_attribute("/", "time_max", set.time_max);
    file.set_attribute("/", "source_name", set.source_name);
    file.set_attribute("/", "source_sha256", set.source_sha256);
  });
}

SequenceSet read_sequence_set(const H5File& file) {
  const DatasetFile stored(file, kSequencesFormat);
  const std::int64_t users = stored.size("n_users", 1, kMost), items = stored.size("n_items", 1, kMost),
                     n = stored.size("n_interactions", 1), timed = stored.size("has_time", 0, 1);
  SequenceSet set;
  const auto fill = [&]<class T>(const std::string& name, std::vector<T>& out, std::int64_t rows) {
    out = stored.read<T>(name, {rows});
  };
  const auto fill_ids = [&](const std::string& name, RawIds& out, std::int64_t rows) {
    stored.expect(name, {H5Type::i64, H5Type::text}, {rows});
    out.is_text = file.info(name).type == H5Type::text;
    if (out.is_text)
      out.texts = stored.read_text(name, rows);
    else
      fill(name, out.numbers, rows);
  };
  fill("/users/offsets", set.offsets, users + 1);
  fill("/users/n_train", set.n_train, users);
  fill_ids("/users/raw_id", set.users, users);
  fill_ids("/items/raw_id", set.items, items);
  fill("/items/count", set.item_count, items);
  fill("/inter/item", set.item, n);
  if (timed == 1) {
    fill("/inter/time_raw", set.time_raw, n);
    fill("/inter/time_scaled", set.time_scaled, n);
  }
  if (file.is_group("/synth")) {
    GapRule& rule = set.rule.emplace();
    fill("/synth/category", rule.category, items);
    fill("/synth/cluster", rule.cluster, items);
    rule.categories = file.int_attribute("/synth", "categories");
    rule.clusters = file.int_attribute("/synth", "clusters");
    rule.unit_s = file.int_attribute("/synth", "unit_s");
    rule.noise = file.real_attribute("/synth", "noise");
    rule.seed = static_cast<std::uint64_t>(file.int_attribute("/synth", "seed"));
  }
  set.min_user = file.int_attribute("/", "min_user");
  set.min_item = file.int_attribute("/", "min_item");
  set.min_split = file.int_attribute("/", "min_split");
  set.time_max = file.int_attribute("/", "time_max");
  set.time_scale = file.text_attribute("/", "time_scale");
  set.keep_ids = file.int_attribute("/", "keep_ids") != 0;
  set.source_name = file.text_attribute("/", "source_name");
  set.source_sha256 = file.text_attribute("/", "source_sha256");
  return set;
}

}  // namespace lockstep::prep
