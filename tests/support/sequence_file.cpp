#include "support/sequence_file.hpp"

#include "lockstep/prep/sequences/gap_sessions.hpp"
#include "support/temp_dir.hpp"

namespace lockstep::test {

prep::SequenceSet sequence_set(const std::vector<std::vector<std::int32_t>>& items, std::int64_t n_items,
                               const std::vector<std::vector<std::int64_t>>& times) {
  prep::SequenceSet set;
  set.offsets = {0};
  for (std::size_t u = 0; u < items.size(); ++u) {
    set.item.insert(set.item.end(), items[u].begin(), items[u].end());
    if (!times.empty()) set.time_raw.insert(set.time_raw.end(), times[u].begin(), times[u].end());
    set.offsets.push_back(std::ssize(set.item));
    set.users.numbers.push_back(100 + static_cast<std::int64_t>(u));
  }
  for (std::int64_t i = 0; i < n_items; ++i) set.items.numbers.push_back(1000 + i);
  set.source_name = "test";
  prep::derive(set, n_items);
  return set;
}

SequenceData read_set(const prep::SequenceSet& set) {
  static const TempDir dir;  // tasks read the names of users later
  static std::deque<LocalDataMemory> memories;
  static int number = 0;
  const auto path = dir / join("data-", ++number, ".h5");
  prep::write_sequence_set(path, set);
  return SequenceData::read(path, memories.emplace_back());
}

prep::SequenceSet gap_sessions(std::int64_t users, std::uint64_t seed) {
  prep::GapSessions what;
  what.users = users;
  what.min_length = 12;
  what.max_length = 24;
  what.categories = 4;
  what.clusters = 2;
  what.members = 10;
  what.seed = seed;
  return prep::make_gap_sessions(what);
}

bool has_had(const SequenceData& data, std::int64_t user, std::int32_t item, Seen seen) {
  return std::ranges::count(data.items(user, seen), item) > 0;
}

}  // namespace lockstep::test
