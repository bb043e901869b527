#pragma once
#include "lockstep/tasks/kgat/kgat_data.hpp"
#include "support/test.hpp"

namespace lockstep::test {

/// Interactions and a knowledge graph in memory, with the relations of a prepared set: 0 and 1 between users and items,
/// then those of the knowledge graph, then their inverses. The first entities are the items.
struct GraphSet {
  std::vector<std::int64_t> ptr = {0};
  std::vector<std::int32_t> item;
  KgData data;
  /// of_users  the items of each user, ascending
  /// kg        triples of entities with relations 0 .. relations - 1
  GraphSet(std::int64_t entities, std::int64_t items, const std::vector<std::vector<std::int32_t>>& of_users,
           const std::vector<Triple>& kg = {}, std::int32_t relations = 0) {
    data.path = "toy", data.users = std::ssize(of_users), data.items = items, data.entities = entities;
    std::vector<Triple> all;
    const auto add = [&](std::int32_t head, std::int32_t relation, std::int32_t inverse, std::int32_t tail) {
      all.insert(all.end(), {{head, relation, tail}, {tail, inverse, head}});
    };
    for (const auto& of : of_users) {
      for (const std::int32_t i : of) add(static_cast<std::int32_t>(entities + std::ssize(ptr) - 1), 0, 1, i);
      item.insert(item.end(), of.begin(), of.end());
      ptr.push_back(std::ssize(item));
    }
    data.train = {ptr, item};
    for (const Triple& t : kg) add(t.head, 2 + t.relation, 2 + relations + t.relation, t.tail);
    data.own_graph(index_triples(data.nodes(), 2 + 2 * relations, all), 2 + 2 * relations);
  }
  GraphSet(const GraphSet&) = delete;
};

}  // namespace lockstep::test
