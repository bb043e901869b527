#include <algorithm>
#include <cmath>
#include <ostream>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/io/dataset_file.hpp"
#include "lockstep/prep/sequences/gap_sessions.hpp"
#include "lockstep/prep/sequences/interactions.hpp"
#include "lockstep/prep/sequences/sequence_set.hpp"
#include "prep/page.hpp"
#include "prep/problems.hpp"
#include "prep/set_file.hpp"

namespace lockstep::prep {

namespace {

void check_ids(const RawIds& ids, const char* name, bool keep_ids, std::vector<std::string>& problems) {
  const auto ascending = [&](const auto& values) {
    return std::ranges::adjacent_find(values, [](const auto& a, const auto& b) { return !(a < b); }) == values.end();
  };
  if (ids.is_text ? !ascending(ids.texts) : !ascending(ids.numbers))
    problems.push_back(join(name, " does not rise: dense numbers follow the order of the raw ids"));
  if (!keep_ids) return;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!ids.is_text && ids.numbers[i] == static_cast<std::int64_t>(i + 1)) continue;
    problems.push_back(
        join(name, ": ids were kept, but number ", i + 1, " is '", ids.name(static_cast<std::int64_t>(i + 1)), "'"));
    return;
  }
}

void check_times(const SequenceSet& set, std::vector<std::string>& problems) {
  for (std::int64_t u = 0; u < set.n_users(); ++u) {
    for (auto k = static_cast<std::size_t>(set.offsets[u]);
         k < static_cast<std::size_t>(set.offsets[static_cast<std::size_t>(u) + 1]); ++k) {
      const bool first = k == static_cast<std::size_t>(set.offsets[u]);
      if (set.time_raw[k] < 0 || set.time_raw[k] > kLargestTime) {
        problems.push_back(join("/inter/time_raw: ", set.time_raw[k], " in row ", k, " is out of range"));
        return;
      }
      if (first || set.time_raw[k - 1] <= set.time_raw[k]) continue;
      problems.push_back(join("/inter/time_raw falls in row ", k, " (user ", u + 1, "): ", set.time_raw[k - 1], ", ",
                              set.time_raw[k]));
      return;
    }
  }
}

template <class T>
void compare(const std::vector<T>& stored, const std::vector<T>& again, const char* name, const char* what,
             std::vector<std::string>& problems) {
  const auto [a, b] = std::mismatch(stored.begin(), stored.end(), again.begin(), again.end());
  if (a == stored.end() && b == again.end()) return;
  problems.push_back(join(name, ": ", *a, " in row ", a - stored.begin(), ", ", what, " ", *b));
}

bool is_sha256(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

void check_rule(const H5File& file, const SequenceSet& set, std::vector<std::string>& problems) {
  const GapRule& rule = *set.rule;
  const auto within = [](const std::vector<std::int32_t>& values, std::int64_t n) {
    return std::ranges::all_of(values, [&](std::int32_t v) { return v >= 0 && v < n; });
  };
  if (!set.has_time() || rule.categories < 2 || rule.clusters < 1 || rule.unit_s < 1 ||
      !(rule.noise >= 0 && rule.noise <= 1) || rule.categories > set.n_items() ||
      rule.clusters > set.n_items() / rule.categories || !within(rule.category, rule.categories) ||
      !within(rule.cluster, rule.clusters)) {
    problems.emplace_back("/synth: categories, clusters, unit_s or noise are out of range, or times are missing");
    return;
  }
  for (const auto& [name, value] : ideal_attributes(set)) {
    const double stored = file.real_attribute("/synth", name);
    if (!(std::abs(stored - value) <= 1e-9))
      problems.push_back(join("/synth: ", name, " is ", stored, ", the sessions give ", value));
  }
}

}  // namespace

std::vector<std::string> check_sequence_set(const H5File& file, std::vector<std::string>& remarks) {
  std::vector<std::string> problems;
  SequenceSet set = read_sequence_set(file, &problems);
  check_ids(set.users, "/users/raw_id", set.keep_ids, problems);
  check_ids(set.items, "/items/raw_id", set.keep_ids, problems);
  if (set.min_user < 1 || set.min_item < 1 || set.min_split < 3)
    problems.push_back(join("impossible attributes min_user = ", set.min_user, ", min_item = ", set.min_item,
                            ", min_split = ", set.min_split));
  const auto& scales = time_scales();
  if (std::ranges::find(scales, set.time_scale) == scales.end())
    problems.push_back(join("unknown time_scale '", set.time_scale, "'"));
  const auto sums = split(set.source_sha256, ',');
  if (!set.rule && (sums.empty() || !std::ranges::all_of(sums, is_sha256)))
    problems.push_back(join("source_sha256 = '", set.source_sha256, "' is not a SHA-256 checksum"));
  if (problems.empty() && set.has_time()) check_times(set, problems);
  if (!problems.empty()) return problems;

  const auto n_train = std::move(set.n_train), item_count = std::move(set.item_count);
  const auto time_scaled = std::move(set.time_scaled);
  const std::int64_t time_max = set.time_max;
  derive(set, std::ssize(item_count));
  compare(n_train, set.n_train, "/users/n_train", "min_split gives", problems);
  compare(item_count, set.item_count, "/items/count", "the training rows have", problems);
  compare(time_scaled, set.time_scaled, "/inter/time_scaled", "time_scale gives", problems);
  if (time_max != set.time_max)
    problems.push_back(join("time_max = ", time_max, ", the largest scaled time is ", set.time_max));
  if (set.rule) check_rule(file, set, problems);

  const auto trainable = std::ranges::count_if(set.n_train, [](std::int32_t m) { return m >= 2; });
  if (trainable == 0) problems.emplace_back("no user has two interactions to train on");
  std::int64_t evaluated = 0, empty = 0;
  for (std::int64_t u = 0; u < set.n_users(); ++u) {
    evaluated += set.length(u) >= set.min_split;
    empty += set.length(u) == 0;
  }
  if (evaluated == 0)
    remarks.push_back(join("no user has min_split = ", set.min_split, " interactions: so no user can be evaluated"));
  if (empty > 0 && !set.keep_ids) problems.push_back(join(empty, " users have no interactions"));
  if (empty > 0 && set.keep_ids) remarks.push_back(join(empty, " users have no interactions (ids were kept)"));
  return problems;
}

void summarise(const SequenceReport& report, const SequenceSet& set, Summary& summary) {
  summary.line("interactions read", report.lines, " of ", report.raw_users, " users and ", report.raw_items, " items");
  summary.line("filtered out", report.few_user, " of users with fewer than ", set.min_user, ", then ", report.few_item,
               " of items with fewer than ", set.min_item);
  const auto percent = [](std::int64_t part, std::int64_t all) {
    return 100 * static_cast<double>(part) / static_cast<double>(std::max<std::int64_t>(all, 1));
  };
  const double lines = percent(report.few_user + report.few_item, report.lines),
               items = set.keep_ids ? 0 : percent(report.raw_items - set.n_items(), report.raw_items);
  constexpr double kMuch = 20;
  if (lines >= kMuch || items >= kMuch)
    summary.note(printed("the filter drops %.0f %% of the interactions and %.0f %% of the items", lines, items),
                 "; for data that was filtered before: --min-user 1 --min-item 1");
  summarise(set, summary);
}

void summarise(const SequenceSet& set, Summary& summary) {
  std::vector<std::int64_t> lengths;
  std::int64_t evaluated = 0, trainable = 0, ties = 0, pairs = 0, train = 0, known_valid = 0, known_test = 0;
  for (std::int64_t u = 0; u < set.n_users(); ++u) {
    const std::int64_t m = set.length(u);
    if (m > 0) lengths.push_back(m);
    evaluated += m >= set.min_split;
    trainable += set.n_train[u] >= 2;
    train += set.n_train[u];
    if (m >= set.min_split) {
      const auto items = set.items_of(u);
      const auto known = [&](std::size_t last) { return std::ranges::count(items.first(last), items[last]) > 0; };
      known_valid += known(items.size() - 2);
      known_test += known(items.size() - 1);
    }
    const auto times = set.times_of(u);
    for (std::size_t k = 1; k < times.size(); ++k) ties += times[k] == times[k - 1];
    pairs += std::max<std::int64_t>(m - 1, 0);
  }
  std::ranges::sort(lengths);
  const std::string mean = printed("%.2f", static_cast<double>(set.rows()) / static_cast<double>(lengths.size()));
  summary.line("users, items", set.n_users(), ", ", set.n_items(), set.keep_ids ? " (raw ids kept)" : "");
  summary.line("interactions", set.rows(), " = ", train, " train + ", evaluated, " validation + ", evaluated, " test");
  summary.line("lengths", lengths.front(), " / ", mean, " / ", lengths[lengths.size() / 2], " / ",
               lengths[(lengths.size() - 1) * 9 / 10], " / ", lengths.back(),
               " (min / mean / median / 90th percentile / max)");
  summary.line("users to train on", trainable, "; to evaluate ", evaluated, " (at least ", set.min_split,
               " interactions)");
  const auto share = [](std::int64_t part, std::int64_t all) {
    return printed("%.1f %%", all > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(all) : 0.0);
  };
  summary.line("recurring", share(known_valid, evaluated), " of the validation items and ",
               share(known_test, evaluated), " of the test items occur earlier in the same history");
  if (!set.has_time()) return summary.line("times", "none");
  summary.line("times", "scale ", set.time_scale, ", largest ", set.time_max, "; ", share(ties, pairs),
               " of neighbours have equal scaled times");
}

void describe_sequence_set(const H5File& file, std::ostream& out) {
  Problems problems;
  const SequenceSet set = read_sequence_set(file, &problems);
  require_sound(problems, file.path());
  Page page(out, file, "interaction data set");
  Summary summary;
  summarise(set, summary);
  summary.print(out);
  page.line("filter", "users with at least ", set.min_user, ", items with at least ", set.min_item,
            " interactions in the raw files");
  const auto ids = [](const RawIds& raw) {
    return join(raw.is_text ? "text " : "integers ", raw.name(1), " .. ", raw.name(std::ssize(raw)));
  };
  page.line("raw ids", "users ", ids(set.users), ", items ", ids(set.items));
  page.line("source", set.source_name, set.source_sha256.empty() ? "" : "  sha256 " + set.source_sha256);
  if (!set.rule) return;
  out << "\n  generated: the next item's category follows from the pause before the current one\n";
  page.attributes("/synth", notes_of(file, "/synth"));
}

}  // namespace lockstep::prep
