#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/prep/sequences/sequence_set.hpp"

namespace lockstep::prep {

/// The shortest session in which every held-out item follows a pause that the rule sets.
constexpr std::int64_t kShortestSession = 5;

/// Synthetic sessions in which the next item depends on the pause before the current item, so that a model that sees
/// times can do better than one that sees only the order.
///
/// An item has a category a (of K) and a cluster b (of M); each cell (a, b) has W members. No user takes an item twice.
/// With probability `noise` the next item is any new item; otherwise it is uniform over the new members of (a', b'):
///
///   b' = (b + 1) mod M,  b the cluster of the current item          visible from the order
///   a' = c,  the pause before the current item lasted K + c units, c uniform on 0..K-1     visible only from the times
///
/// The first pause lasts one unit, so that the scale per_user_min counts in units. The categories of the second and the
/// third item are uniform. Any sum of two pauses other than the first exceeds 2K - 1 units, so a time span of 2K - 1
/// distinguishes every pause. A cell without new members counts as noise.
struct GapSessions {
  std::int64_t users = 2000, min_length = 20, max_length = 50;  ///< lengths are uniform, both bounds included
  std::int64_t categories = 8, clusters = 4, members = 20;
  std::int64_t unit_s = 60;
  double noise = 0.1;
  std::uint64_t seed = 0;
  std::int64_t n_items() const { return categories * clusters * members; }
};
SequenceSet make_gap_sessions(const GapSessions& what);

/// Rates of the best possible ranking on the held-out items of one split: items sorted by their true probability given
/// the history, with (gap) or without (order) the pause before the current item; ties in random order. The rates are
/// exact expectations over that order and over the negatives.
struct IdealRates {
  struct Gain {
    double hr = 0, ndcg = 0;
  };
  Gain gap, order;            ///< against 100 negatives
  Gain full_gap, full_order;  ///< against all items outside the history
};
enum class HeldOut : std::uint8_t { valid, test };
/// Rates at 10. Negatives are uniform with replacement over the items outside the user's history, as in evaluation.
/// errors  internal: a set without a rule
IdealRates ideal_rates(const SequenceSet& set, HeldOut which);
/// The rates of both splits as attributes: "ideal_valid_hr10_gap", ...
std::vector<std::pair<std::string, double>> ideal_attributes(const SequenceSet& set);

}  // namespace lockstep::prep
