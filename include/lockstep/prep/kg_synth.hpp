#pragma once
#include <cstdint>

#include "lockstep/prep/kg_set.hpp"

namespace lockstep::prep {

/// Preferences that only the graph reveals.
///
/// Every item belongs to one of `tastes` (item i to taste i mod tastes); the graph says so with the triple (item, 0,
/// taste entity). Every user has `tastes_per_user` of them. Half of a taste's items are open, half are hidden: a
/// user's train items are drawn from the open items of his tastes, his test items from the hidden ones. Hidden items
/// do occur in train, but by chance alone: each user also has `noise` train items drawn uniformly from all hidden
/// items. So nothing in train tells which hidden item a user will like: whoever does not read the graph can do no
/// better than chance among them, whoever does finds the taste through his open items. `distractors` further triples
/// per item lead with the relations 1 .. relations-1 to `fillers` entities that mean nothing.
struct PlantedKg {
  std::int64_t users = 600, items = 400, tastes = 20, tastes_per_user = 2;
  std::int64_t train_items = 12, test_items = 8, noise = 4;
  std::int64_t relations = 4, distractors = 1, fillers = 100;
  std::uint64_t seed = 2019;
};
inline std::int64_t planted_taste(const PlantedKg& rule, std::int64_t item) { return item % rule.tastes; }
/// Of a taste's items every second one is hidden.
inline bool planted_hidden(const PlantedKg& rule, std::int64_t item) { return item / rule.tastes % 2 == 1; }
/// Sizes, train, test and triples; the graph is not built yet. errors  usage: too few items of a taste, too few
/// triples to draw from
KgSet make_planted_kg(const PlantedKg& rule);

/// A graph of a given size over the items of a set, for measuring speed. `triples` distinct triples: relation with
/// probability ~ 1 / (rank + 1), head an item (uniformly) with probability 0.7 and else one of the other entities,
/// tail one of the other entities ~ 1 / (rank + 10). It says nothing about anybody's taste.
struct SizedKg {
  std::int64_t entities = 113487, relations = 39, triples = 2557746;
  std::uint64_t seed = 2019;
};
/// Replaces the triples of a set and sets its sizes. errors  usage: no entities beside the items, more triples than
/// can be found
void add_sized_kg(KgSet& set, const SizedKg& shape);

}  // namespace lockstep::prep
