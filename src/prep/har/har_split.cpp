#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/prep/draw.hpp"
#include "lockstep/prep/har/har_set.hpp"

namespace lockstep::prep {

namespace {

std::vector<std::int64_t> training_windows(const HarSet& set) {
  std::vector<std::int64_t> out;
  for (std::int64_t n = 0; n < set.windows(); ++n)
    if (set.split[n] == 0) out.push_back(n);
  return out;
}

/// errors  data: a window without a subject
std::map<std::int32_t, std::vector<std::int64_t>> by_subject(const HarSet& set,
                                                             const std::vector<std::int64_t>& windows) {
  std::map<std::int32_t, std::vector<std::int64_t>> groups;
  for (const std::int64_t n : windows) groups[set.subject[n]].push_back(n);
  require_data(!groups.contains(-1), "splitting windows by subject: ", groups.contains(-1) ? groups[-1].size() : 0,
               " of ", windows.size(), " windows have no known subject; use --val-split random");
  return groups;
}

/// The number of windows of a fraction, rounded up as in scikit-learn's train_test_split.
std::int64_t share_of(std::size_t windows, double fraction) {
  return static_cast<std::int64_t>(std::ceil(static_cast<double>(windows) * fraction - 1e-9));
}

/// Chooses subjects whose windows are near a fraction of all, in total and of each class.
class Shares {
 public:
  /// counts[subject]: the number of its windows, then of those of each class.
  Shares(const std::vector<std::vector<double>>& counts, double fraction)
      : counts_(counts), fraction_(fraction), all_(counts.front().size(), 0.0) {
    for (const auto& row : counts)
      for (std::size_t k = 0; k < row.size(); ++k) all_[k] += row[k];
  }

  /// Improves two choices and returns the better one: the first subjects of `order` that have `wanted` windows, and
  /// those that, added in this order, never have more than `wanted`.
  std::vector<std::size_t> choose(const std::vector<std::int64_t>& order, double wanted) const {
    std::vector<std::size_t> all(order.begin(), order.end());
    double windows = 0;
    std::size_t taken = 0;
    for (; windows < wanted && taken + 1 < all.size(); ++taken) windows += counts_[all[taken]].front();
    const auto [drawn, drawn_cost] = improved(all, taken);
    windows = 0;
    const auto rest = std::stable_partition(all.begin(), all.end(), [&](std::size_t subject) {
      const double more = counts_[subject].front();
      const bool fits = windows + more <= wanted;
      windows += fits ? more : 0;
      return fits;
    });
    const auto [fitting, fitting_cost] = improved(all, static_cast<std::size_t>(rest - all.begin()));
    return fitting_cost < drawn_cost - kLeast && !fitting.empty() ? fitting : drawn;
  }

 private:
  static constexpr double kLeast = 1e-9;  ///< smallest gain that justifies a move

  /// Starts from the first `taken` subjects of `order`. Moves or exchanges one subject at a time while the cost falls.
  /// Returns the choice and its cost.
  std::pair<std::vector<std::size_t>, double> improved(const std::vector<std::size_t>& order, std::size_t taken) const {
    std::vector<std::size_t> chosen(order.begin(), order.begin() + taken), rest(order.begin() + taken, order.end());
    std::vector<double> sum(all_.size(), 0.0);
    for (const std::size_t subject : chosen) add(sum, subject, 1);
    constexpr std::size_t kNone = static_cast<std::size_t>(-1), kSeen = 256;  // bounds the time for many subjects
    double least = cost(sum);
    for (int round = 0; round < 1000; ++round) {
      std::size_t out = kNone, in = kNone;  // indices into chosen and rest
      const auto attempt = [&](std::size_t leaving, std::size_t coming) {
        auto moved = sum;
        if (leaving != kNone) add(moved, chosen[leaving], -1);
        if (coming != kNone) add(moved, rest[coming], 1);
        if (const double now = cost(moved); now < least - kLeast) least = now, out = leaving, in = coming;
      };
      const std::size_t here = std::min(chosen.size(), kSeen), there = std::min(rest.size(), kSeen);
      for (std::size_t c = 0; c < here && chosen.size() > 1; ++c) attempt(c, kNone);
      for (std::size_t r = 0; r < there && rest.size() > 1; ++r) attempt(kNone, r);
      for (std::size_t c = 0; c < here; ++c)
        for (std::size_t r = 0; r < there; ++r) attempt(c, r);
      if (out == kNone && in == kNone) break;
      if (out != kNone) add(sum, chosen[out], -1);
      if (in != kNone) add(sum, rest[in], 1);
      if (out != kNone && in != kNone) {
        std::swap(chosen[out], rest[in]);
      } else if (out != kNone) {
        rest.push_back(chosen[out]);
        chosen.erase(chosen.begin() + out);
      } else {
        chosen.push_back(rest[in]);
        rest.erase(rest.begin() + in);
      }
    }
    return {chosen, least};
  }

  void add(std::vector<double>& sum, std::size_t subject, double sign) const {
    for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += sign * counts_[subject][k];
  }
  /// The distance from the wanted shares: that of all windows, plus the mean over classes.
  double cost(const std::vector<double>& sum) const {
    constexpr double kTooFew = 5, kLost = 100;
    double total = 0;
    const double classes = static_cast<double>(all_.size()) - 1;
    for (std::size_t k = 0; k < all_.size(); ++k) {
      if (all_[k] == 0) continue;
      const double off = sum[k] / all_[k] - fraction_, away = off < 0 ? -kTooFew * off : off;
      total += k == 0 ? away : away / classes;
      total += k > 0 && sum[k] == all_[k] ? kLost : 0;
    }
    return total;
  }

  const std::vector<std::vector<double>>& counts_;
  double fraction_;
  std::vector<double> all_;
};

void move_to(HarSet& set, const std::vector<std::int64_t>& windows, std::uint8_t part) {
  for (const std::int64_t n : windows) set.split[n] = part;
}

}  // namespace

void split_subjects(HarSet& set, const std::vector<std::int64_t>& windows, double fraction, std::uint8_t part,
                    std::uint64_t seed, const char* site) {
  const std::int64_t wanted = share_of(windows.size(), fraction);
  if (wanted == 0) return;
  const auto groups = by_subject(set, windows);
  require_data(groups.size() >= 2, "splitting windows by subject: ", groups.size(), " subject is not enough for ",
               part == 2 ? "a test part; use --test-fraction 0" : "two parts; use --val-split random",
               ", or name the split of each recording");
  std::vector<const std::vector<std::int64_t>*> members;
  std::vector<std::vector<double>> counts;  // of a subject: its windows, then those of each class
  for (const auto& [subject, all] : groups) {
    members.push_back(&all);
    counts.emplace_back(1 + set.class_names.size(), 0.0).front() = static_cast<double>(all.size());
    for (const std::int64_t n : all) ++counts.back()[1 + static_cast<std::size_t>(set.labels[n])];
  }
  const auto order = draw_permutation(std::ssize(members), seed, site);
  for (const std::size_t subject : Shares(counts, fraction).choose(order, static_cast<double>(wanted)))
    move_to(set, *members[subject], part);
}

void split_validation(HarSet& set, const HarSplit& how) {
  const auto windows = training_windows(set);
  set.notes.emplace_back("val_split", how.val_split);
  set.notes.emplace_back("seed", static_cast<std::int64_t>(how.seed));
  if (how.val_split == "random") {
    const std::int64_t count = share_of(windows.size(), how.val_fraction);
    for (const std::int64_t i : draw_subset(std::ssize(windows), count, how.seed, "prep.har.validation"))
      set.split[windows[i]] = 1;
  } else if (how.val_subjects.empty()) {
    split_subjects(set, windows, how.val_fraction, 1, how.seed, "prep.har.validation");
  } else {
    const auto groups = by_subject(set, windows);
    for (const auto& wanted : how.val_subjects) {
      const auto found =
          std::ranges::find_if(groups, [&](const auto& group) { return set.subject_name(group.first) == wanted; });
      if (found != groups.end()) {
        move_to(set, found->second, 1);
        continue;
      }
      const auto known = listed(groups, ",", [&](const auto& group) { return set.subject_name(group.first); });
      throw Error(Fault::usage, join(how.val_given ? "option split.val_subjects" : "the default of --val-subjects",
                                     ": subject '", wanted, "' has no training windows; those that have are ", known,
                                     how.val_given ? "" : ": name some of them with --val-subjects"));
    }
  }
  require_data(set.windows_in(0) > 0, "splitting windows: none of ", windows.size(), " is left for training");
}

}  // namespace lockstep::prep
