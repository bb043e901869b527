/// Builds the sorted graph, its pattern and initial values from interactions and triples.
#include <algorithm>
#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/base/philox.hpp"
#include "lockstep/prep/kgat/kg_set.hpp"

namespace lockstep::prep {

namespace {

/// The number of triples of each relation that leave each node: per node, ascending relations with counts.
class RelationDegrees {
 public:
  RelationDegrees(const Ckg& graph, std::int64_t nodes, std::int64_t relations) {
    std::vector<std::int64_t> count(at(relations), 0);
    std::vector<std::int32_t> met;
    begin_.reserve(at(nodes) + 1);
    begin_.push_back(0);
    for (std::int64_t node = 0; node < nodes; ++node) {
      met.clear();
      for (std::int64_t e = graph.indptr[at(node)]; e < graph.indptr[at(node + 1)]; ++e)
        if (count[at(graph.rel[at(e)])]++ == 0) met.push_back(graph.rel[at(e)]);
      std::sort(met.begin(), met.end());
      for (const std::int32_t relation : met) {
        relation_.push_back(relation);
        degree_.push_back(std::exchange(count[at(relation)], 0));
      }
      begin_.push_back(std::ssize(relation_));
    }
  }
  /// 0 when no triple of the relation leaves the node.
  std::int64_t of(std::int32_t node, std::int32_t relation) const {
    const auto first = relation_.begin() + begin_[at(node)], last = relation_.begin() + begin_[at(node) + 1];
    const auto found = std::lower_bound(first, last, relation);
    return found == last || *found != relation ? 0 : degree_[at(found - relation_.begin())];
  }

 private:
  std::vector<std::int64_t> begin_, degree_;
  std::vector<std::int32_t> relation_;
};

std::int32_t inverse_of(std::int32_t relation, std::int32_t kg_relations) {
  if (relation < 2) return 1 - relation;
  return relation < 2 + kg_relations ? relation + kg_relations : relation - kg_relations;
}

/// The triples of the graph: interactions, knowledge graph, and the inverse of each.
std::vector<Triple> directed(const KgSizes& sizes, const UserItems& train, std::span<const Triple> kg) {
  const auto user_node = static_cast<std::int32_t>(sizes.entities);
  const auto kg_relations = static_cast<std::int32_t>(sizes.kg_relations);
  std::vector<Triple> triples;
  triples.reserve(at(sizes.ckg_triples()));
  for (std::int64_t user = 0; user < sizes.users; ++user) {
    const auto node = static_cast<std::int32_t>(user_node + user);
    for (const std::int32_t item : train.of(user)) triples.insert(triples.end(), {{node, 0, item}, {item, 1, node}});
  }
  for (const auto& [head, relation, tail] : kg)
    triples.insert(triples.end(), {{head, relation + 2, tail}, {tail, relation + 2 + kg_relations, head}});
  return triples;
}

void initial_values(Ckg& graph, const KgSizes& sizes, SymmetricForm form) {
  const RelationDegrees degrees(graph, sizes.nodes(), sizes.relations());
  const auto kg_relations = static_cast<std::int32_t>(sizes.kg_relations);
  graph.random_walk.resize(graph.col.size());
  graph.symmetric.resize(graph.col.size());
  for (std::int64_t node = 0; node < sizes.nodes(); ++node) {
    const auto head = static_cast<std::int32_t>(node);
    for (std::int64_t p = graph.adj_indptr[at(node)]; p < graph.adj_indptr[at(node + 1)]; ++p) {
      double walk = 0, symmetric = 0;
      for (std::int64_t e = graph.edge_ptr[at(p)]; e < graph.edge_ptr[at(p + 1)]; ++e) {
        const std::int32_t relation = graph.rel[at(e)];
        const auto out = static_cast<double>(degrees.of(head, relation));
        const auto in = static_cast<double>(
            degrees.of(graph.col[at(p)], form == SymmetricForm::sound ? inverse_of(relation, kg_relations) : relation));
        walk += 1 / out;
        if (in > 0) symmetric += 1 / std::sqrt(out * in);
      }
      graph.random_walk[at(p)] = static_cast<float>(walk);
      graph.symmetric[at(p)] = static_cast<float>(symmetric);
    }
  }
}

}  // namespace

void KgSizes::require_indexable() const {
  for (const std::int64_t size : {users, items, entities, kg_relations, kg_triples, train, test})
    require_data(size >= 0 && size <= (std::int64_t{1} << 60), "building the graph: a size of ", size,
                 " is impossible");
  require_data(entities >= items, "building the graph: ", entities, " entities, fewer than the ", items,
               " items among them");
  require_data(nodes() <= kLargestId, "building the graph: ", entities, " entities and ", users, " users are ", nodes(),
               " nodes; their ids must stay below ", kLargestId + 1);
  require_data(relations() <= kLargestId, "building the graph: ", relations(), " relations; their ids must stay below ",
               kLargestId + 1);
}

std::span<const std::int32_t> UserItems::of(std::int64_t user) const {
  return std::span(item).subspan(at(indptr[at(user)]), at(indptr[at(user + 1)] - indptr[at(user)]));
}

Ckg build_ckg(const KgSizes& sizes, const UserItems& train, std::span<const Triple> kg, SymmetricForm form) {
  sizes.require_indexable();
  require(train.users() == sizes.users && std::ssize(train.item) == sizes.train && std::ssize(kg) == sizes.kg_triples,
          "building the graph: the sizes are not those of the interactions and triples");
  Ckg graph;
  static_cast<TripleGraph&>(graph) = index_triples(sizes.nodes(), sizes.relations(), directed(sizes, train, kg));
  for (std::int64_t node = 0; node < sizes.nodes(); ++node)
    graph.degree.push_back(static_cast<std::int32_t>(graph.adj_indptr[at(node + 1)] - graph.adj_indptr[at(node)]));
  initial_values(graph, sizes, form);
  return graph;
}

UserItems carve(KgSet& set, double fraction, std::uint64_t seed, Site site) {
  UserItems train{{0}, {}}, carved{{0}, {}};
  for (std::int64_t user = 0; user < set.sizes.users; ++user) {
    const auto items = set.train.of(user);
    std::vector<std::int32_t> order(items.begin(), items.end());
    const Philox random(seed, 0, site, static_cast<std::uint64_t>(user));
    // A fraction of an item becomes an item with that probability, so that the share is exact on average.
    const auto wanted = static_cast<std::int64_t>(fraction * static_cast<double>(order.size()) + random.uniform(0));
    const std::int64_t taken = std::min(wanted, std::max<std::int64_t>(std::ssize(order) - 1, 0));
    for (std::int64_t i = 0; i < taken; ++i)
      std::swap(order[at(i)], order[at(i) + random.below(order.size() - at(i), at(i + 1))]);
    const auto cut = order.begin() + taken;
    std::sort(order.begin(), cut);
    std::sort(cut, order.end());
    carved.item.insert(carved.item.end(), order.begin(), cut);
    train.item.insert(train.item.end(), cut, order.end());
    carved.indptr.push_back(std::ssize(carved.item));
    train.indptr.push_back(std::ssize(train.item));
  }
  set.train = std::move(train);
  set.sizes.train = std::ssize(set.train.item);
  return carved;
}

}  // namespace lockstep::prep
