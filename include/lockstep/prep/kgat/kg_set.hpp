#pragma once
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/philox.hpp"
#include "lockstep/io/dataset_file.hpp"
#include "lockstep/samples/triple_graph.hpp"

namespace lockstep::prep {

/// An index of an array.
inline std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

/// The largest id in a file: ids have 32 bits, counts and offsets 64.
inline constexpr std::int64_t kLargestId = 2147483646;

/// Sizes of the collaborative knowledge graph (CKG), which unites interactions, knowledge graph and their inverses.
/// Items are the entities 0 .. items-1; user u is the node entities + u.
struct KgSizes {
  std::int64_t users = 0, items = 0, entities = 0, kg_relations = 0, kg_triples = 0, train = 0, test = 0;

  std::int64_t nodes() const { return entities + users; }
  /// 0: user -> item; 1: item -> user; r + 2: relation r of the knowledge graph; r + 2 + kg_relations: its inverse.
  std::int64_t relations() const { return 2 * kg_relations + 2; }
  std::int64_t ckg_triples() const { return 2 * (kg_triples + train); }
  bool operator==(const KgSizes&) const = default;
  /// errors  data: a negative size, entities < items, node or relation ids beyond 32 bits
  void require_indexable() const;
};

/// Distinct items of each user, ascending.
struct UserItems {
  std::vector<std::int64_t> indptr;  ///< (users + 1)
  std::vector<std::int32_t> item;
  std::int64_t users() const { return static_cast<std::int64_t>(indptr.size()) - 1; }
  std::span<const std::int32_t> of(std::int64_t user) const;
};

/// How `/adj/symmetric` is computed. `upstream` uses row degrees for both sides, as the reference programs do: an edge
/// whose tail is not a head of the same relation gets 0, and so does every interaction.
enum class SymmetricForm : std::uint8_t { sound, upstream };

/// The graph with its initial values. The pattern is symmetric because every relation has its inverse.
struct Ckg : TripleGraph {
  std::vector<float> random_walk, symmetric;  ///< (nnz)
  std::vector<std::int32_t> degree;           ///< (nodes), pattern entries per row
};

/// Builds the graph in O(T log(largest row)). Initial values, with d_r(x) the number of triples of relation r with head
/// x:
///
///   random_walk(h, t) = sum over r of 1 / d_r(h)
///   symmetric(h, t)   = sum over r of 1 / sqrt(d_r(h) d_r'(t)),   r' the inverse of r
///                       (upstream: r itself; 0 where d_r(t) = 0)
///
/// source  Wang, He, Cao, Liu, Chua 2019, "KGAT: Knowledge Graph Attention Network for Recommendation",
/// arXiv:1905.07854
/// errors  data: as KgSizes::require_indexable
Ckg build_ckg(const KgSizes& sizes, const UserItems& train, std::span<const Triple> kg, SymmetricForm form);

/// A prepared graph in memory, as data/README.md describes it.
struct KgSet {
  std::string name;
  KgSizes sizes;
  UserItems train, test, valid;  ///< valid: without indptr if there is none
  std::vector<Triple> triples;   ///< distinct, in the order of their first occurrence
  Ckg ckg;
  SymmetricForm symmetric = SymmetricForm::sound;
  std::vector<std::string> sources, sha256;  ///< raw files and their checksums
  DatasetNotes notes;                        ///< further attributes: policies, seeds, generator
};

/// Takes about `fraction` of each user's items out of `set.train` and returns them; at least one stays. A user's draw
/// depends only on seed, site and user.
UserItems carve(KgSet& set, double fraction, std::uint64_t seed, Site site);

/// Writes the file atomically; `deflate`: 0 (none) .. 9. errors  internal: the disk is full; usage: not writable
void write_kg_set(const std::filesystem::path& path, const KgSet& set, int deflate);
/// Reads a file back. errors  data: another format, contradictory sizes, a dataset missing or of another shape or type
KgSet read_kg_set(const H5File& file, std::vector<std::string>* problems = nullptr);
/// Problems of a prepared file, one line each: checksums, ranges, offsets, order, and differences from the graph built
/// again from interactions and triples.
std::vector<std::string> check_kg_set(const H5File& file, std::vector<std::string>& remarks);
/// Prints a page about a prepared file.
void describe_kg_set(const H5File& file, std::ostream& out);

}  // namespace lockstep::prep
