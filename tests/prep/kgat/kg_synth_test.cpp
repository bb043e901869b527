#include "lockstep/prep/kgat/kg_synth.hpp"

#include "prep/kgat/kg_text.hpp"
#include "support/test.hpp"

using namespace lockstep::prep;

namespace {

/// Mean share of a user's test items among the 20 best of `score(user, item)`; train items left out, ties to the
/// smaller id.
double recall_at_20(const KgSet& set, auto score) {
  double sum = 0;
  for (std::int64_t user = 0; user < set.sizes.users; ++user) {
    const auto train = set.train.of(user), test = set.test.of(user);
    std::vector<std::pair<double, std::int32_t>> ranking;
    for (std::int32_t item = 0; item < set.sizes.items; ++item)
      if (!std::binary_search(train.begin(), train.end(), item)) ranking.emplace_back(-score(user, item), item);
    std::partial_sort(ranking.begin(), ranking.begin() + 20, ranking.end());
    double hits = 0;
    for (std::size_t k = 0; k < 20; ++k) hits += std::binary_search(test.begin(), test.end(), ranking[k].second);
    sum += hits / static_cast<double>(test.size());
  }
  return sum / static_cast<double>(set.sizes.users);
}

/// How often two items share a user, from train alone: what a factorisation could learn.
std::vector<double> shared_users(const KgSet& set) {
  std::vector<double> count(at(set.sizes.items * set.sizes.items), 0);
  for (std::int64_t user = 0; user < set.sizes.users; ++user)
    for (const auto a : set.train.of(user))
      for (const auto b : set.train.of(user)) count[at(a * set.sizes.items + b)] += a != b;
  return count;
}
}  // namespace

TEST_SUITE("prep.kg_synth") {
  TEST_CASE("planted train items come from open items and chance, test items from hidden items of the user's tastes") {
    const PlantedKg rule;
    const KgSet set = make_planted_kg(rule);
    for (std::int64_t user = 0; user < rule.users; ++user) {
      std::set<std::int64_t> tastes;
      std::int64_t hidden = 0;
      for (const auto item : set.train.of(user)) {
        if (planted_hidden(rule, item)) {
          ++hidden;
        } else {
          tastes.insert(planted_taste(rule, item));
        }
      }
      CHECK(hidden == rule.noise);
      CHECK(static_cast<std::int64_t>(set.train.of(user).size()) == rule.train_items + rule.noise);
      CHECK(std::ssize(tastes) == rule.tastes_per_user);
      CHECK(static_cast<std::int64_t>(set.test.of(user).size()) == rule.test_items);
      for (const auto item : set.test.of(user)) {
        CHECK(planted_hidden(rule, item));
        CHECK(tastes.contains(planted_taste(rule, item)));
        CHECK(!std::ranges::binary_search(set.train.of(user), item));
      }
    }
    std::map<std::int32_t, std::int32_t> taste_of;
    for (const auto& t : set.triples)
      if (t.relation == 0) CHECK(taste_of.emplace(t.head, t.tail).second);
    CHECK(std::ssize(taste_of) == rule.items);
  }

  TEST_CASE("in a planted graph triples find the hidden items, and interactions do no better than chance") {
    const PlantedKg rule;
    const KgSet set = make_planted_kg(rule);
    std::vector<std::int32_t> taste_of(at(rule.items));
    for (const auto& t : set.triples)
      if (t.relation == 0) taste_of[at(t.head)] = t.tail;
    const double by_graph = recall_at_20(set, [&](std::int64_t user, std::int32_t item) {
      double score = 0;
      for (const auto own : set.train.of(user)) score += taste_of[at(own)] == taste_of[at(item)];
      return score;
    });
    const auto shared = shared_users(set);
    const double by_users = recall_at_20(set, [&](std::int64_t user, std::int32_t item) {
      double score = 0;
      for (const auto own : set.train.of(user)) score += shared[at(own * rule.items + item)];
      return score;
    });
    // Among the hidden items alone, where popularity and open items cannot get in the way, sharing users says nothing
    // either.
    const double by_users_hidden = recall_at_20(set, [&](std::int64_t user, std::int32_t item) {
      double score = planted_hidden(rule, item) ? 0 : -1e9;
      for (const auto own : set.train.of(user)) score += shared[at(own * rule.items + item)];
      return score;
    });
    CAPTURE(by_graph);
    CAPTURE(by_users);
    CAPTURE(by_users_hidden);
    CHECK(by_graph > 0.6);
    CHECK(by_users < 0.08);
    // 20 of 196 hidden items that are not the user's: 0.102 by chance; 4800 draws give +- 0.005, items in common add to
    // that.
    CHECK(std::abs(by_users_hidden - 20.0 / 196) < 0.03);
  }

  TEST_CASE("more users leave the first users of a planted graph unchanged") {
    PlantedKg more;
    const KgSet small = make_planted_kg(more);
    more.users = 700;
    const KgSet large = make_planted_kg(more);
    for (std::int64_t user = 0; user < 600; ++user) {
      CHECK(std::ranges::equal(small.train.of(user), large.train.of(user)));
      CHECK(std::ranges::equal(small.test.of(user), large.test.of(user)));
    }
    CHECK(small.triples == large.triples);
    more.seed = 1;
    CHECK(make_planted_kg(more).train.item != large.train.item);
  }

  TEST_CASE("a sized graph has the requested sizes, distinct triples and the stated distributions") {
    KgSet set = parse_kg("0 1 2\n1 99\n", "0 3\n", "0 0 1\n");
    const SizedKg shape{600, 6, 40000, 7};
    add_sized_kg(set, shape);
    CHECK(set.sizes.entities == 600);
    CHECK(set.sizes.kg_relations == 6);
    CHECK(set.sizes.kg_triples == 40000);
    std::set<std::array<std::int32_t, 3>> different;
    double items = 0, tail_rank = 0;
    std::array<double, 6> relations{};
    for (const auto& t : set.triples) {
      different.insert({t.head, t.relation, t.tail});
      items += t.head < 100;
      relations[at(t.relation)] += 1;
      CHECK(t.tail >= 100);
      CHECK(t.tail < 600);
      tail_rank += t.tail < 120;
    }
    CHECK(different.size() == 40000);
    // Few enough duplicates were thrown away that shares stay near those of the draws: 0.7 of the heads, 1/H6 of
    // relation 0.
    CHECK(items / 40000 == Approx(0.7).epsilon(0.03));
    CHECK(relations[0] / 40000 == Approx(1 / 2.45).epsilon(0.06));
    CHECK(relations[5] / 40000 == Approx(1 / (6 * 2.45)).epsilon(0.12));
    double low = 0, all = 0;
    for (int rank = 0; rank < 500; ++rank) {
      all += 1.0 / (rank + 10);
      low += rank < 20 ? 1.0 / (rank + 10) : 0;
    }
    CHECK(tail_rank / 40000 == Approx(low / all).epsilon(0.12));
    // A longer list begins with the shorter one.
    KgSet longer = parse_kg("0 1 2\n1 99\n", "0 3\n", "0 0 1\n");
    add_sized_kg(longer, {600, 6, 41000, 7});
    CHECK(std::equal(set.triples.begin(), set.triples.end(), longer.triples.begin()));
  }

  TEST_CASE("impossible requests are refused") {
    const auto refused = [](auto change, const char* what) {
      PlantedKg rule;
      change(rule);
      check_mentions(error_of(Fault::usage, [&] { make_planted_kg(rule); }), what);
    };
    refused([](PlantedKg& r) { r.train_items = 21; }, "train-items = 21");
    refused([](PlantedKg& r) { r.test_items = 17; }, "17 + 4 is more than the 20");
    refused([](PlantedKg& r) { r.tastes_per_user = 21; }, "tastes-per-user");
    refused([](PlantedKg& r) { r.relations = 1; }, "distractors need a second");
    refused([](PlantedKg& r) { r.fillers = 0; }, "too few");
    KgSet set = parse_kg("0 1 2\n1 99\n", "0 3\n", "0 0 1\n");
    check_mentions(error_of(Fault::usage, [&] { add_sized_kg(set, {100, 6, 50, 7}); }), "entities = 100");
    const auto few_entities = [&] { add_sized_kg(set, {110, 2, 5000, 7}); };
    check_mentions(error_of(Fault::usage, few_entities), "are too few for so many");
  }
}
