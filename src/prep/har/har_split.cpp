#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/prep/draw.hpp"
#include "lockstep/prep/har/har_set.hpp"

namespace lockstep::prep {

namespace {

std::vector<std::int64_t> training_windows(const HarSet& set) {
  std::vector<std::int64_t> out;
  for (std::int64_t n = 0; n < set.windows(); ++n) {
    if (set.split[static_cast<std::size_t>(n)] == 0) out.push_back(n);
  }
  return out;
}

/// errors  data: a window without a subject
std::map<std::int32_t, std::vector<std::int64_t>> by_subject(const HarSet& set,
                                                             const std::vector<std::int64_t>& windows) {
  std::map<std::int32_t, std::vector<std::int64_t>> groups;
  for (const std::int64_t n : windows) groups[set.subject[static_cast<std::size_t>(n)]].push_back(n);
  require_data(!groups.contains(-1), "splitting windows by subject: ", groups.contains(-1) ? groups[-1].size() : 0,
               " of ", windows.size(), " windows have no known subject; use --val-split random");
  return groups;
}

/// The number of windows of a fraction, rounded up as in scikit-learn's train_test_split.
std::int64_t share_of(std::size_t windows, double fraction) {
  return static_cast<std::int64_t>(std::ceil(static_cast<double>(windows) * fraction - 1e-9));
}

void move_to(HarSet& set, const std::vector<std::int64_t>& windows, std::uint8_t part) {
  for (const std::int64_t n : windows) set.split[static_cast<std::size_t>(n)] = part;
}

}  // namespace

void split_subjects(HarSet& set, const std::vector<std::int64_t>& windows, double fraction, std::uint8_t part,
                    std::uint64_t seed, const char* site) {
  const std::int64_t wanted = share_of(windows.size(), fraction);
  if (wanted == 0) return;
  const auto groups = by_subject(set, windows);
  require_data(groups.size() >= 2, "splitting windows by subject: ", groups.size(),
               " subject is not enough for two parts; use --val-split random, or name the split of each recording");
  std::vector<std::int32_t> subjects;
  for (const auto& [subject, members] : groups) subjects.push_back(subject);
  std::int64_t moved = 0;
  const auto order = draw_permutation(static_cast<std::int64_t>(subjects.size()), seed, site);
  for (std::size_t i = 0; i + 1 < order.size() && moved < wanted; ++i) {
    const auto& members = groups.at(subjects[static_cast<std::size_t>(order[i])]);
    move_to(set, members, part);
    moved += static_cast<std::int64_t>(members.size());
  }
}

void split_validation(HarSet& set, const HarSplit& how) {
  const auto windows = training_windows(set);
  set.notes.emplace_back("val_split", how.val_split);
  set.notes.emplace_back("seed", static_cast<std::int64_t>(how.seed));
  if (how.val_split == "random") {
    const std::int64_t count = share_of(windows.size(), how.val_fraction);
    for (const std::int64_t i :
         draw_subset(static_cast<std::int64_t>(windows.size()), count, how.seed, "prep.har.validation"))
      set.split[static_cast<std::size_t>(windows[static_cast<std::size_t>(i)])] = 1;
  } else if (how.val_subjects.empty()) {
    split_subjects(set, windows, how.val_fraction, 1, how.seed, "prep.har.validation");
  } else {
    const auto groups = by_subject(set, windows);
    for (const auto& wanted : how.val_subjects) {
      const auto found = std::find_if(groups.begin(), groups.end(),
                                      [&](const auto& group) { return set.subject_name(group.first) == wanted; });
      if (found != groups.end()) {
        move_to(set, found->second, 1);
        continue;
      }
      std::string known;
      for (const auto& [subject, members] : groups) known += (known.empty() ? "" : ",") + set.subject_name(subject);
      throw Error(Fault::usage, join("option split.val_subjects: subject '", wanted,
                                     "' has no training windows; those that have are ", known));
    }
  }
  require_data(set.windows_in(0) > 0, "splitting windows: none of ", windows.size(), " is left for training");
}

}  // namespace lockstep::prep
