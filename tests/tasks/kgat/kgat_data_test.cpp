#include "lockstep/tasks/kgat/kgat_data.hpp"

#include "lockstep/base/hash.hpp"
#include "lockstep/prep/kgat/kg_set.hpp"
#include "support/test.hpp"

namespace {

/// Two users of three items, and an entity (3) with parallel edges to item 0. Nodes 4 and 5 are the users.
prep::KgSet small_set() {
  prep::KgSet set;
  set.name = "small";
  set.sizes = {.users = 2, .items = 3, .entities = 4, .kg_relations = 2, .kg_triples = 3, .train = 3, .test = 3};
  set.train = {{0, 2, 3}, {0, 2, 1}};
  set.test = {{0, 1, 3}, {1, 0, 2}};
  set.triples = {{0, 0, 3}, {0, 1, 3}, {1, 0, 3}};
  set.ckg = prep::build_ckg(set.sizes, set.train, set.triples, set.symmetric);
  return set;
}

/// The message of the error that reading a damaged set throws.
std::string refusal(const std::function<void(prep::KgSet&)>& spoil) {
  prep::KgSet set = small_set();
  spoil(set);
  prep::write_kg_set("kg.h5", set, 0);
  LocalDataMemory data_memory;
  std::string message = error_of(Fault::data, [&] { KgData::read("kg.h5", data_memory); });
  check_mentions(message, "kg.h5");
  return message;
}

}  // namespace

TEST_SUITE("tasks.kgat_data") {
  TEST_CASE("the hash is that of the arrays in the order of the format, each read once") {
    const prep::KgSet set = small_set();
    prep::write_kg_set("kg.h5", set, 0);
    LocalDataMemory data_memory;
    std::uint64_t hash = 0;
    const auto add = [&](const auto& values) {
      const std::uint64_t sum = hash64(values.data(), values.size() * sizeof values[0]);
      hash = hash64(&sum, sizeof sum, hash);
    };
    for (const prep::UserItems* part : {&set.train, &set.test}) {
      add(part->indptr);
      add(part->item);
    }
    add(set.ckg.indptr);
    add(set.ckg.tail);
    add(set.ckg.rel);
    for (const auto* places : {&set.ckg.rel_indptr, &set.ckg.rel_perm, &set.ckg.adj_indptr}) add(*places);
    add(set.ckg.col);
    for (const auto* places : {&set.ckg.edge_ptr, &set.ckg.transpose}) add(*places);
    CHECK(KgData::read("kg.h5", data_memory).hash == hash);
  }

  TEST_CASE("each order that searches rely on is checked, with dataset and row") {
    prep::write_kg_set("whole.h5", small_set(), 0);
    LocalDataMemory data_memory;
    CHECK(KgData::read("whole.h5", data_memory).test.has(1, 2));

    const char* ascending = "the items of a user must be ascending and distinct";
    const auto check = [](const std::string& message, const std::string& where, const std::string& rule) {
      check_mentions(message, where);
      check_mentions(message, rule);
    };
    check(refusal([](auto& set) { std::swap(set.test.item[1], set.test.item[2]); }),
          "'/cf/test/item' of 'kg.h5': 0 in row 2", ascending);
    check(refusal([](auto& set) { set.train.item[1] = 0; }), "'/cf/train/item' of 'kg.h5': 0 in row 1", ascending);
    // The triples: 0 -> 3 twice, 0 -> 4; 1 -> 3, 1 -> 5; 2 -> 4; 3 -> 0 twice, 3 -> 1; 4 -> 0, 4 -> 2; 5 -> 1.
    check(refusal([](auto& set) { std::swap(set.ckg.tail[1], set.ckg.tail[2]); }), "'/ckg/tail' of 'kg.h5': 3 in row 2",
          "the tails of a head");
    check(refusal([](auto& set) { std::swap(set.ckg.rel[0], set.ckg.rel[1]); }), "'/ckg/rel' of 'kg.h5': 2 in row 1",
          "the relations of a head and a tail");
    check(refusal([](auto& set) { std::swap(set.ckg.rel_perm[0], set.ckg.rel_perm[1]); }),
          "'/ckg/rel_perm' of 'kg.h5': 9 in row 1", "the triples of a relation");
    check(refusal([](auto& set) { std::swap(set.ckg.rel_perm[0], set.ckg.rel_perm[3]); }),
          "'/ckg/rel_perm' of 'kg.h5': 2 in row 0", "the triples of a relation");
    check(refusal([](auto& set) { std::swap(set.ckg.col[0], set.ckg.col[1]); }), "'/adj/col' of 'kg.h5': 3 in row 1",
          "the columns of a node");
    check(refusal([](auto& set) { std::swap(set.ckg.transpose[0], set.ckg.transpose[1]); }),
          "'/adj/transpose' of 'kg.h5'", "the entry of the reversed pair");
    check(refusal([](auto& set) { --set.ckg.edge_ptr[1]; }), "'/adj/edge_ptr' of 'kg.h5': 1 in row 1",
          "the triples of an entry");
  }
}
