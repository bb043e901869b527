#pragma once
#include <cstdint>

#include "lockstep/prep/kgat/kg_set.hpp"

namespace lockstep::prep {

/// Preferences that only the graph reveals.
///
/// Item i has taste i mod `tastes`, which the graph states in the triple (item, 0, taste entity). Every user has
/// `tastes_per_user` tastes. Half of a taste's items are open, half are hidden: a user's train items are drawn from the
/// open items of the user's tastes, the test items from the hidden ones. Hidden items occur in train only by chance:
/// each user also has `noise` train items drawn uniformly from all hidden items. Train therefore does not reveal which
/// hidden items a user likes. A model without the graph cannot rank them better than chance; a model with the graph
/// finds the tastes through the open items. `distractors` further triples per item, of relations 1 .. relations-1, lead
/// to `fillers` meaningless entities.
struct PlantedKg {
  std::int64_t users = 600, items = 400, tastes = 20, tastes_per_user = 2;
  std::int64_t train_items = 12, test_items = 8, noise = 4;
  std::int64_t relations = 4, distractors = 1, fillers = 100;
  std::uint64_t seed = 2019;
};
inline std::int64_t planted_taste(const PlantedKg& rule, std::int64_t item) { return item % rule.tastes; }
/// Every second item of a taste is hidden.
inline bool planted_hidden(const PlantedKg& rule, std::int64_t item) { return item / rule.tastes % 2 == 1; }
/// Makes sizes, train, test and triples; does not build the graph. errors  usage: too few items per taste, too few
/// triples to draw from
KgSet make_planted_kg(const PlantedKg& rule);

/// A random graph of a given size over the items of a set, for measuring speed. It has `triples` distinct triples:
/// relation r with probability ~ 1 / (r + 1); as head a uniform item with probability 0.7, otherwise another entity; as
/// tail the k-th of the other entities with probability ~ 1 / (k + 10). The graph is independent of the interactions.
struct SizedKg {
  std::int64_t entities = 113487, relations = 39, triples = 2557746;
  std::uint64_t seed = 2019;
};
/// Replaces the triples of a set and sets its sizes. errors  usage: no entities besides the items, more triples than
/// can be found
void add_sized_kg(KgSet& set, const SizedKg& shape);

}  // namespace lockstep::prep
