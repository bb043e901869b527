/// Generated sessions follow their rule, and the stated rates equal those of an actual ranking.
#include "lockstep/prep/sequences/gap_sessions.hpp"

#include "support/test.hpp"

using namespace lockstep::prep;

namespace {
GapSessions small() {
  GapSessions what = {
      .users = 400, .min_length = 10, .max_length = 30, .categories = 4, .clusters = 3, .members = 8, .seed = 5};
  return what;
}

/// Ranks the target of every user against 100 drawn negatives, by the cell that the rule names; ties are broken at
/// random.
struct Simulated {
  double hit = 0, ndcg = 0;
};
Simulated simulate(const SequenceSet& set, bool gap_known) {
  const GapRule& rule = *set.rule;
  const auto category = [&](std::int32_t item) { return rule.category[to_size(item - 1)]; };
  const auto cluster = [&](std::int32_t item) { return rule.cluster[to_size(item - 1)]; };
  constexpr int kRounds = 20;
  Simulated out;
  for (std::int64_t u = 0; u < set.n_users(); ++u) {
    const auto items = set.items_of(u);
    const auto times = set.times_of(u);
    const std::size_t n = items.size();
    const std::set<std::int32_t> taken(items.begin(), items.end());
    const auto pause = times[n - 2] - times[n - 3] - rule.categories;
    const auto next_cluster = (cluster(items[n - 2]) + 1) % rule.clusters;
    // Without the pause the most probable category is the one with fewest new members.
    const auto weight = [&](std::int32_t item) {
      if (cluster(item) != next_cluster || (gap_known && category(item) != pause)) return 0.0;
      std::int64_t fresh = 0;
      for (std::int32_t other = 1; other <= set.n_items(); ++other)
        fresh += cluster(other) == next_cluster && category(other) == category(item) &&
                 std::find(items.begin(), items.end() - 1, other) == items.end() - 1;
      return 1.0 / static_cast<double>(fresh);
    };
    std::vector<double> weights(to_size(set.n_items()) + 1);
    for (std::int32_t item = 1; item <= set.n_items(); ++item) weights[to_size(item)] = weight(item);
    const Philox random(99, 0, "test.simulate", static_cast<std::uint64_t>(u));
    std::uint64_t draw = 0;
    for (int round = 0; round < kRounds; ++round) {
      const double own = weights[to_size(items[n - 1])], own_luck = random.uniform(draw++);
      int rank = 0;
      for (int k = 0; k < 100; ++k) {
        std::int32_t negative = 0;
        do negative = 1 + static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(set.n_items()), draw++));
        while (taken.contains(negative));
        const double other = weights[to_size(negative)];
        rank += other > own || (other == own && random.uniform(draw++) > own_luck);
      }
      if (rank >= 10) continue;
      out.hit += 1.0 / kRounds / static_cast<double>(set.n_users());
      out.ndcg += 1 / std::log2(rank + 2.0) / kRounds / static_cast<double>(set.n_users());
    }
  }
  return out;
}
}  // namespace

TEST_SUITE("prep.gap_sessions") {
  TEST_CASE("without noise every item is where the pause and the order say, and none comes twice") {
    GapSessions what = small();
    what.noise = 0;
    const auto set = make_gap_sessions(what);
    const GapRule& rule = *set.rule;
    std::int64_t follow = 0, checked = 0;
    std::set<std::int64_t> pauses;
    for (std::int64_t u = 0; u < set.n_users(); ++u) {
      const auto items = set.items_of(u);
      const auto times = set.times_of(u);
      CHECK(std::set<std::int32_t>(items.begin(), items.end()).size() == items.size());
      CHECK(times[1] - times[0] == 1);
      for (std::size_t k = 3; k < items.size(); ++k) {
        const auto pause = times[k - 1] - times[k - 2];
        pauses.insert(pause);
        const auto now = to_size(items[k] - 1), before = to_size(items[k - 1] - 1);
        follow += rule.category[now] == pause - 4 && rule.cluster[now] == (rule.cluster[before] + 1) % 3;
        ++checked;
      }
    }
    CHECK(pauses == std::set<std::int64_t>{4, 5, 6, 7});
    CHECK(static_cast<double>(follow) / static_cast<double>(checked) > 0.99);  // the rest: cells without new members
    CHECK(set.length(0) >= 10);
    CHECK(ideal_rates(set, HeldOut::test).gap.hr > 0.7);
  }

  TEST_CASE("the promised rates are those of ranking by the rule, with and without the pause") {
    const auto set = make_gap_sessions(small());
    const auto ideal = ideal_rates(set, HeldOut::test);
    // 400 users of 20 rounds: the standard error of a rate is below 0.008, most of it common to both.
    const auto gap = simulate(set, true), order = simulate(set, false);
    CHECK(gap.hit == Approx(ideal.gap.hr).epsilon(0.02));
    CHECK(gap.ndcg == Approx(ideal.gap.ndcg).epsilon(0.03));
    CHECK(order.hit == Approx(ideal.order.hr).epsilon(0.03));
    CHECK(order.ndcg == Approx(ideal.order.ndcg).epsilon(0.05));
  }

  TEST_CASE("by default the pauses are worth half of all hits") {
    GapSessions what;
    what.users = 500;
    const auto ideal = ideal_rates(make_gap_sessions(what), HeldOut::valid);
    CHECK(ideal.gap.hr > 0.85);
    CHECK(ideal.order.hr < 0.45);
    CHECK(ideal.full_gap.hr > 5 * ideal.full_order.hr);
  }

  TEST_CASE("a user's session depends on the seed and the user alone") {
    GapSessions few = small(), many = small();
    few.users = 3;
    const auto a = make_gap_sessions(few), b = make_gap_sessions(many);
    CHECK(std::equal(a.item.begin(), a.item.end(), b.item.begin()));
    CHECK(std::equal(a.time_raw.begin(), a.time_raw.end(), b.time_raw.begin()));
    few.seed = 6;
    CHECK(make_gap_sessions(few).item != a.item);
  }
}
