#include "lockstep/prep/kgat/kg_synth.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <unordered_set>

#include "lockstep/base/error.hpp"
#include "lockstep/base/memory_limit.hpp"
#include "lockstep/prep/draw.hpp"

namespace lockstep::prep {

namespace {

/// Draws `count` of these without replacement, ascending, by the draws `first`, `first + 1`, ...
std::vector<std::int32_t> pick(std::vector<std::int32_t> from, std::int64_t count, const Philox& random,
                               std::uint64_t first) {
  for (std::int64_t i = 0; i < count; ++i)
    std::swap(from[at(i)], from[at(i) + random.below(from.size() - at(i), first + static_cast<std::uint64_t>(i))]);
  from.resize(at(count));
  std::sort(from.begin(), from.end());
  return from;
}

void append(UserItems& to, const std::set<std::int32_t>& items) {
  to.item.insert(to.item.end(), items.begin(), items.end());
  to.indptr.push_back(std::ssize(to.item));
}

/// Draws an index with probability proportional to 1 / (index + shift).
class Harmonic {
 public:
  Harmonic(std::int64_t n, double shift) {
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sums_.push_back(sum += 1 / (static_cast<double>(i) + shift));
  }
  std::int64_t index(double uniform) const {
    const auto found = std::upper_bound(sums_.begin(), sums_.end(), uniform * sums_.back());
    return std::min(found - sums_.begin(), std::ssize(sums_) - 1);
  }

 private:
  std::vector<double> sums_;
};

}  // namespace

KgSet make_planted_kg(const PlantedKg& rule) {
  const std::int64_t per_taste = rule.items / rule.tastes;  // the smallest taste
  const std::int64_t open = (per_taste + 1) / 2, hidden = per_taste / 2;
  require_usage(rule.tastes_per_user <= rule.tastes, "option tastes-per-user = ", rule.tastes_per_user, ": there are ",
                rule.tastes, " tastes");
  require_usage(rule.train_items <= open * rule.tastes_per_user, "option train-items = ", rule.train_items, ": ",
                rule.tastes_per_user, " tastes have ", open * rule.tastes_per_user, " open items; raise --items");
  require_usage(rule.test_items + rule.noise <= hidden * rule.tastes_per_user,
                "options test-items, noise: ", rule.test_items, " + ", rule.noise, " is more than the ",
                hidden * rule.tastes_per_user, " hidden items of ", rule.tastes_per_user, " tastes; raise --items");
  require_usage(rule.distractors == 0 || rule.relations > 1, "option relations = ", rule.relations,
                ": distractors need a second one");
  const std::int64_t distractor_pool = (rule.relations - 1) * rule.fillers;
  require_usage(rule.distractors <= distractor_pool / 2, "option distractors = ", rule.distractors, ": ",
                rule.relations - 1, " relations to ", rule.fillers, " fillers are too few");

  const auto real = [](std::int64_t n) { return static_cast<double>(n); };
  require_memory_for(real(rule.users) * real(rule.train_items + rule.noise + rule.test_items) * sizeof(std::int32_t) +
                         real(rule.items) * real(1 + rule.distractors) * sizeof(Triple),
                     "making the graph: its interactions and triples need",
                     "lower users, items, train-items, test-items, noise or distractors");

  KgSet set;
  KgSizes& sizes = set.sizes;
  sizes.users = rule.users;
  sizes.items = rule.items;
  sizes.entities = rule.items + rule.tastes + rule.fillers;
  sizes.kg_relations = rule.relations;
  sizes.require_indexable();
  std::vector<std::int32_t> tastes, all_hidden;
  for (std::int64_t taste = 0; taste < rule.tastes; ++taste) tastes.push_back(static_cast<std::int32_t>(taste));
  for (std::int64_t item = 0; item < rule.items; ++item)
    if (planted_hidden(rule, item)) all_hidden.push_back(static_cast<std::int32_t>(item));

  set.train.indptr = set.test.indptr = {0};
  for (std::int64_t user = 0; user < rule.users; ++user) {
    const auto random = [&](Site site) { return Philox(rule.seed, 0, site, static_cast<std::uint64_t>(user)); };
    std::vector<std::int32_t> open_own, hidden_own;
    for (const std::int32_t taste : pick(tastes, rule.tastes_per_user, random("prep.kg.taste"), 0))
      for (std::int64_t item = taste; item < rule.items; item += rule.tastes)
        (planted_hidden(rule, item) ? hidden_own : open_own).push_back(static_cast<std::int32_t>(item));
    const auto liked = pick(open_own, rule.train_items, random("prep.kg.train"), 0);
    const auto noise = pick(all_hidden, rule.noise, random("prep.kg.noise"), 0);
    std::erase_if(hidden_own, [&](std::int32_t item) { return std::binary_search(noise.begin(), noise.end(), item); });
    const auto wanted = pick(hidden_own, rule.test_items, random("prep.kg.test"), 0);
    std::set<std::int32_t> train(liked.begin(), liked.end());
    train.insert(noise.begin(), noise.end());
    append(set.train, train);
    append(set.test, {wanted.begin(), wanted.end()});
  }
  for (std::int64_t item = 0; item < rule.items; ++item) {
    const auto head = static_cast<std::int32_t>(item);
    set.triples.push_back({head, 0, static_cast<std::int32_t>(rule.items + planted_taste(rule, item))});
    Draws draws(rule.seed, 0, "prep.kg.distractor", static_cast<std::uint64_t>(item));
    std::set<std::int64_t> places;
    while (std::ssize(places) < rule.distractors)
      places.insert(static_cast<std::int64_t>(draws.uniform() * static_cast<double>(distractor_pool)));
    for (const std::int64_t place : places)
      set.triples.push_back({head, static_cast<std::int32_t>(1 + place / rule.fillers),
                             static_cast<std::int32_t>(rule.items + rule.tastes + place % rule.fillers)});
  }
  sizes.train = std::ssize(set.train.item);
  sizes.test = std::ssize(set.test.item);
  sizes.kg_triples = std::ssize(set.triples);
  return set;
}

void add_sized_kg(KgSet& set, const SizedKg& shape) {
  KgSizes& sizes = set.sizes;
  const std::int64_t items = sizes.items, others = shape.entities - items;
  require_usage(others > 0, "option entities = ", shape.entities, ": the ", items,
                " items are entities too, and there must be others");
  const auto places =
      static_cast<uint128>(shape.entities) * static_cast<uint128>(others) * static_cast<uint128>(shape.relations);
  require_usage(places <= std::numeric_limits<std::uint64_t>::max(), "options entities, relations: ", shape.entities,
                " and ", shape.relations, " allow more triples than 64 bits can number");
  require_usage(static_cast<uint128>(shape.triples) <= places / 4, "option triples = ", shape.triples, ": ",
                shape.entities, " entities and ", shape.relations, " relations are too few for so many");
  constexpr std::size_t kKnown = 3 * sizeof(std::uint64_t);  // in the set of triples: number, bucket, next
  require_memory_for(static_cast<double>(shape.triples) * (sizeof(Triple) + kKnown) +
                         static_cast<double>(shape.relations + others) * sizeof(double),
                     join("making the graph: ", shape.triples, " triples, ", shape.entities, " entities and ",
                          shape.relations, " relations need"),
                     "lower triples, entities or relations");
  const Harmonic relation(shape.relations, 1), tail(others, 10);
  const Philox random(shape.seed, 0, "prep.kg.sized");
  std::unordered_set<std::uint64_t> known;
  known.reserve(at(shape.triples));
  set.triples.clear();
  set.triples.reserve(at(shape.triples));
  const auto patience = 64 * static_cast<std::uint64_t>(shape.triples) + 1000;
  for (std::uint64_t draw = 0; std::ssize(set.triples) < shape.triples; ++draw) {
    require_usage(draw < patience, "option triples = ", shape.triples, ": the draws gave only ", set.triples.size(),
                  " different ones; raise entities or relations");
    const std::int64_t r = relation.index(random.uniform(4 * draw));
    const bool from_item = random.uniform(4 * draw + 1) < 0.7;
    const auto place = random.below(static_cast<std::uint64_t>(from_item ? items : others), 4 * draw + 2);
    const auto h = static_cast<std::int64_t>(place) + (from_item ? 0 : items);
    const std::int64_t t = tail.index(random.uniform(4 * draw + 3));
    const auto key = static_cast<std::uint64_t>((r * shape.entities + h)) * static_cast<std::uint64_t>(others) +
                     static_cast<std::uint64_t>(t);
    if (!known.insert(key).second) continue;
    set.triples.push_back(
        {static_cast<std::int32_t>(h), static_cast<std::int32_t>(r), static_cast<std::int32_t>(items + t)});
  }
  sizes.entities = shape.entities;
  sizes.kg_relations = shape.relations;
  sizes.kg_triples = shape.triples;
  sizes.require_indexable();
}

}  // namespace lockstep::prep
