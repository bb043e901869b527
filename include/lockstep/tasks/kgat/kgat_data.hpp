#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "lockstep/base/named.hpp"
#include "lockstep/data/data_memory.hpp"
#include "lockstep/data/split.hpp"
#include "lockstep/models/kgat/knowledge_graph.hpp"
#include "lockstep/samples/triple_graph.hpp"

namespace lockstep {

/// Distinct items of each user, ascending.
struct UserItems {
  std::span<const std::int64_t> indptr;  ///< (users + 1), or empty: no items
  std::span<const std::int32_t> item;
  std::int64_t count() const { return static_cast<std::int64_t>(item.size()); }
  std::span<const std::int32_t> of(std::int64_t user) const {
    if (indptr.empty()) return {};
    const auto u = static_cast<std::size_t>(user);
    return item.subspan(indptr[u], indptr[u + 1] - indptr[u]);
  }
  /// Whether the user has the item; a binary search.
  bool has(std::int64_t user, std::int64_t item) const;
};

/// Which triples of the knowledge graph a network uses. It always uses the interactions and their inverses.
///
///   whole     all of them
///   shuffled  the tails of each relation permuted at random: every entity keeps its number of triples per relation and
///             side, but not its neighbours. The same triple may then occur twice
///   removed   none of them; the relations keep their numbers, without triples
enum class GraphControl : std::uint8_t { whole, shuffled, removed };
constexpr auto names_of(GraphControl) { return std::array{"whole", "shuffled", "removed"}; }

/// A prepared knowledge-graph data set (lockstep-kgat) in memory, one copy per data_memory. Items are the entities
/// 0 .. items-1; user u is node entities + u.
struct KgData {
  std::filesystem::path path;
  std::int64_t users = 0, items = 0, entities = 0;
  UserItems train, valid, test;  ///< valid is empty unless it was carved out of train
  KgGraph graph;
  std::uint64_t hash = 0;                    ///< XXH3 over interactions and triples of the file
  std::shared_ptr<const TripleGraph> owned;  ///< the arrays of `graph` unless the data_memory owns them

  std::int64_t nodes() const { return entities + users; }
  const UserItems& of(Split split) const {
    return split == Split::train ? train : split == Split::validation ? valid : test;
  }

  /// Reads a file that lockstep-prep wrote. Checks all values that the program later uses as indices, and the order
  /// that its searches rely on.
  /// errors  data, naming file, dataset and row: another format or version, an attribute or dataset missing or of
  ///         another shape, offsets that do not ascend, ids out of range, another order than that of data/README.md
  static KgData read(const std::filesystem::path& path, DataMemory& data_memory);
  /// Replaces the graph by one whose arrays this object and its copies share.
  void own_graph(TripleGraph arrays, std::int64_t relations);
  /// The same data with another graph, a private copy per process. The permutation of a relation's tails
  /// is a function of (seed, relation).
  ///
  /// errors  usage: the graph has no triples besides the interactions, so that all controls are the same
  KgData with(GraphControl control, std::uint64_t seed) const;
};

}  // namespace lockstep
