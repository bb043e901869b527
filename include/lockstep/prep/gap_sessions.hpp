#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/prep/sequence_set.hpp"

namespace lockstep::prep {

/// In shorter sessions a held-out item would not follow a pause of the rule.
constexpr std::int64_t kShortestSession = 5;

/// Sessions in which the next item depends on the pause before the current one, so that a model that sees the times can
/// know more than one that sees only the order.
///
/// An item has a category a (of K), a cluster b (of M) and is one of W members. No user takes an item twice. With
/// chance `noise` the next item is any new one; otherwise it is a new member, uniformly, of the cell (a', b'):
///
///   b' = (b + 1) mod M,  b the cluster of the current item          what the order tells
///   a' = c,  the pause before the current item lasted K + c units, c uniform on 0..K-1     what only the times tell
///
/// The first pause lasts one unit, so that the scale per_user_min counts in units; the second and third item's
/// categories are uniform. Any sum of two pauses but the first exceeds 2K - 1 units: a time span of 2K - 1 shows every
/// pause. A cell without new members counts as noise.
struct GapSessions {
  std::int64_t users = 2000, min_length = 20, max_length = 50;  ///< lengths are uniform, both bounds included
  std::int64_t categories = 8, clusters = 4, members = 20;
  std::int64_t unit_s = 60;
  double noise = 0.1;
  std::uint64_t seed = 0;
  std::int64_t n_items() const { return categories * clusters * members; }
};
SequenceSet make_gap_sessions(const GapSessions& what);

/// What the best possible ranking reaches on the held-out items of one split: items in the order of their true
/// probability given the history, the pause before the current item known or not; equally probable ones in random
/// order. Expectations over that order and over the negatives: computed, not sampled.
struct IdealRates {
  /// Against 100 negatives.
  double hr_gap = 0, hr_order = 0, ndcg_gap = 0, ndcg_order = 0;
  /// Against all items outside the history.
  double full_hr_gap = 0, full_hr_order = 0, full_ndcg_gap = 0, full_ndcg_order = 0;
  /// Every rate with its name: "hr10_gap", ...
  std::vector<std::pair<std::string, double>> named() const;
};
enum class HeldOut : std::uint8_t { valid, test };
/// Rates at 10; negatives are drawn uniformly with replacement from the items outside the user's history, as evaluation
/// does.
/// errors  internal: a set without rule
IdealRates ideal_rates(const SequenceSet& set, HeldOut which);

}  // namespace lockstep::prep
