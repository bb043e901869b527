#include "lockstep/prep/sequences/gap_sessions.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/base/consecutive.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/prep/draw.hpp"

namespace lockstep::prep {

namespace {

constexpr std::int64_t kDay = 86400, kEpochStart = 1577836800;  ///< 2020-01-01 00:00 UTC
constexpr int kNegatives = 100, kTop = 10;

/// Items by cell: cell = cluster * categories + category.
std::vector<std::vector<std::int32_t>> items_by_cell(const GapRule& rule) {
  std::vector<std::vector<std::int32_t>> cells(rule.categories * rule.clusters);
  for (std::size_t i = 0; i < rule.category.size(); ++i)
    cells[rule.cluster[i] * rule.categories + rule.category[i]].push_back(static_cast<std::int32_t>(i + 1));
  return cells;
}

class Walker {
 public:
  Walker(const GapSessions& what, const GapRule& rule)
      : what_(what), rule_(rule), cells_(items_by_cell(rule)), taken_(rule.category.size() + 1, -1) {}

  void walk(std::int64_t user, SequenceSet& set) {
    Draws draws(what_.seed, 0, "prep.gap_sessions.user", static_cast<std::uint64_t>(user));
    const auto below = [&](std::int64_t n) {
      return std::min(static_cast<std::int64_t>(draws.uniform() * static_cast<double>(n)), n - 1);
    };
    const std::int64_t length = what_.min_length + below(what_.max_length - what_.min_length + 1);
    std::int64_t time = kEpochStart + below(365 * kDay);
    std::int64_t pause_class = below(what_.categories);  // of the pause before the current item; drawn for the first
    std::int32_t current = 0;
    for (std::int64_t k = 0; k < length; ++k) {
      std::vector<std::int32_t> fresh;
      if (k > 0 && draws.uniform() >= what_.noise) {
        const std::int64_t cluster = (rule_.cluster[current - 1] + 1) % rule_.clusters;
        for (const std::int32_t item : cells_[cluster * rule_.categories + pause_class])
          if (taken_[item] != user) fresh.push_back(item);
      }
      if (!fresh.empty()) {
        current = fresh[below(std::ssize(fresh))];
      } else {
        do current = static_cast<std::int32_t>(1 + below(what_.n_items()));
        while (taken_[current] == user);
      }
      if (k > 0) {  // the pause before this item, which the item after it depends on
        pause_class = below(what_.categories);
        time += what_.unit_s * (k == 1 ? 1 : what_.categories + pause_class);
      }
      taken_[current] = user;
      set.item.push_back(current);
      set.time_raw.push_back(time);
    }
    set.offsets.push_back(set.rows());
  }

 private:
  const GapSessions& what_;
  const GapRule& rule_;
  std::vector<std::vector<std::int32_t>> cells_;
  std::vector<std::int64_t> taken_;  ///< last user who took the item
};

/// Expected hits and gain of a target with `better` candidates above it and `tied` others in random order with it.
using Gain = IdealRates::Gain;
Gain gain_of(std::int64_t better, std::int64_t tied) {
  Gain gain;
  const std::int64_t last = std::min<std::int64_t>(kTop - 1, better + tied);
  for (std::int64_t place = better; place <= last; ++place) {
    gain.hr += 1;
    gain.ndcg += 1 / std::log2(static_cast<double>(place) + 2);
  }
  const auto places = static_cast<double>(tied + 1);
  return {gain.hr / places, gain.ndcg / places};
}

void add(Gain& sum, const Gain& gain, double weight) {
  sum.hr += weight * gain.hr;
  sum.ndcg += weight * gain.ndcg;
}

/// P(Binomial(n, p) = k).
double binomial(std::int64_t n, std::int64_t k, double p) {
  if (p <= 0) return k == 0 ? 1 : 0;
  if (p >= 1) return k == n ? 1 : 0;
  const auto real_n = static_cast<double>(n), real_k = static_cast<double>(k);
  return std::exp(std::lgamma(real_n + 1) - std::lgamma(real_k + 1) - std::lgamma(real_n - real_k + 1) +
                  real_k * std::log(p) + (real_n - real_k) * std::log1p(-p));
}

/// The same against negatives drawn with replacement from a pool. A share `better` of the pool is above the target; a
/// share `tied` ties with it.
Gain sampled_gain(double better, double tied, const std::array<std::array<Gain, kNegatives + 1>, kTop>& gains) {
  Gain sum;
  for (std::int64_t b = 0; b < kTop; ++b) {
    const double chance_b = binomial(kNegatives, b, better);
    if (chance_b < 1e-15) continue;
    const double share = better < 1 ? std::min(1.0, tied / (1 - better)) : 0;
    for (std::int64_t t = 0; t <= kNegatives - b; ++t) {
      add(sum, gains[b][t], chance_b * binomial(kNegatives - b, t, share));
    }
  }
  return sum;
}

/// Candidates of equal probability: new items of a cell, or all others.
struct Group {
  double probability;
  std::int64_t size;
};

}  // namespace

SequenceSet make_gap_sessions(const GapSessions& what) {
  SequenceSet set;
  GapRule& rule = set.rule.emplace();
  rule.categories = what.categories;
  rule.clusters = what.clusters;
  rule.unit_s = what.unit_s;
  rule.noise = what.noise;
  rule.seed = what.seed;
  const std::int64_t items = what.n_items();
  rule.category.resize(items);
  rule.cluster.resize(items);
  // Item numbers must not reveal the cells.
  const auto label = draw_permutation(items, what.seed, "prep.gap_sessions.items");
  for (std::int64_t i = 0; i < items; ++i) {
    const auto at = static_cast<std::size_t>(label[i]);
    rule.category[at] = static_cast<std::int32_t>(i % what.categories);
    rule.cluster[at] = static_cast<std::int32_t>(i / what.categories % what.clusters);
  }
  Walker walker(what, rule);
  set.offsets = {0};
  for (std::int64_t user = 0; user < what.users; ++user) walker.walk(user, set);
  set.users.numbers = consecutive<std::int64_t>(what.users, 1);
  set.items.numbers = consecutive<std::int64_t>(items, 1);
  set.keep_ids = true;  // items without interactions keep their numbers
  set.source_name = "synth-sequences";
  derive(set, items);
  return set;
}

IdealRates ideal_rates(const SequenceSet& set, HeldOut which) {
  require(set.rule.has_value(), "ideal rates: not a generated set");
  const GapRule& rule = *set.rule;
  const auto cells = items_by_cell(rule);
  std::array<std::array<Gain, kNegatives + 1>, kTop> gains;
  for (std::int64_t b = 0; b < kTop; ++b)
    for (std::int64_t t = 0; t <= kNegatives; ++t) gains[b][t] = gain_of(b, t);
  const auto cell_of = [&](std::int32_t item) {
    const auto i = static_cast<std::size_t>(item - 1);
    return static_cast<std::size_t>(rule.cluster[i] * rule.categories + rule.category[i]);
  };

  IdealRates rates;
  std::int64_t users = 0;
  std::vector<std::int64_t> seen(cells.size()), all(cells.size());  // items of the history, and of the whole sequence
  for (std::int64_t u = 0; u < set.n_users(); ++u) {
    const auto history = set.items_of(u);
    const auto raw = std::span(set.time_raw).subspan(set.offsets[u], history.size());
    if (set.length(u) < kShortestSession) continue;
    const std::size_t target = history.size() - (which == HeldOut::test ? 1 : 2);
    std::fill(seen.begin(), seen.end(), 0);
    std::fill(all.begin(), all.end(), 0);
    for (std::size_t k = 0; k < history.size(); ++k) {
      ++all[cell_of(history[k])];
      seen[cell_of(history[k])] += k < target;
    }
    const auto pool = set.n_items() - std::ssize(history);
    if (pool < 1) continue;
    ++users;
    const std::int64_t cluster = (rule.cluster[history[target - 1] - 1] + 1) % rule.clusters;
    const std::int64_t pause = (raw[target - 1] - raw[target - 2]) / rule.unit_s - rule.categories;
    for (const bool gap_known : {true, false}) {
      // Only the rule's contribution to the probability of a new item. The noise, including the share of exhausted
      // cells, is equal for all items.
      std::vector<Group> groups;
      std::int64_t rest = pool;
      double target_probability = 0;
      for (std::int64_t a = 0; a < rule.categories; ++a) {
        const double weight = !gap_known ? 1 / static_cast<double>(rule.categories) : a == pause ? 1 : 0;
        if (weight == 0) continue;
        const auto cell = static_cast<std::size_t>(cluster * rule.categories + a);
        const auto members = std::ssize(cells[cell]);
        if (members == seen[cell]) continue;
        const double probability = (1 - rule.noise) * weight / static_cast<double>(members - seen[cell]);
        groups.push_back({probability, members - all[cell]});
        rest -= members - all[cell];
        if (cell_of(history[target]) == cell) target_probability = probability;
      }
      groups.push_back({0, rest});
      std::int64_t better = 0, tied = 0;
      for (const Group& group : groups) {
        const bool same = std::abs(group.probability - target_probability) <= 1e-12;
        if (same) tied += group.size;
        if (!same && group.probability > target_probability) better += group.size;
      }
      const auto share = [&](std::int64_t n) { return static_cast<double>(n) / static_cast<double>(pool); };
      add(gap_known ? rates.gap : rates.order, sampled_gain(share(better), share(tied), gains), 1);
      add(gap_known ? rates.full_gap : rates.full_order, gain_of(better, tied), 1);
    }
  }
  for (Gain* of : {&rates.gap, &rates.order, &rates.full_gap, &rates.full_order})
    for (double* rate : {&of->hr, &of->ndcg}) *rate /= static_cast<double>(std::max<std::int64_t>(users, 1));
  return rates;
}

std::vector<std::pair<std::string, double>> ideal_attributes(const SequenceSet& set) {
  std::vector<std::pair<std::string, double>> named;
  for (const auto which : {HeldOut::valid, HeldOut::test}) {
    const IdealRates rates = ideal_rates(set, which);
    const std::string prefix = which == HeldOut::valid ? "ideal_valid_" : "ideal_test_";
    const auto name = [&](const std::string& prefix, const Gain& gap, const Gain& order) {
      named.insert(named.end(), {{prefix + "hr10_gap", gap.hr},
                                 {prefix + "hr10_order", order.hr},
                                 {prefix + "ndcg10_gap", gap.ndcg},
                                 {prefix + "ndcg10_order", order.ndcg}});
    };
    name(prefix, rates.gap, rates.order);
    name(prefix + "full_", rates.full_gap, rates.full_order);
  }
  return named;
}

}  // namespace lockstep::prep
