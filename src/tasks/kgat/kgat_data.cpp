#include "lockstep/tasks/kgat/kgat_data.hpp"

#include <algorithm>
#include <limits>

#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/base/philox.hpp"
#include "lockstep/data/dataset_rows.hpp"

namespace lockstep {

namespace {

/// A row of an array whose groups of rows have offsets.
struct Row {
  std::int64_t i, group;
  bool first;  ///< of its group
};
/// Whether a row is greater than the one before it in its group.
bool ascends(const auto& values, const Row& row) { return row.first || values[row.i - 1] < values[row.i]; }

/// Reads arrays of one file into the data_memory and checks what later indexing relies on.
class Arrays {
 public:
  Arrays(const DatasetFile& set, DataMemory& data_memory) : set_(set), data_memory_(data_memory) {}

  /// 0 = first <= ... <= last = total.
  std::span<const std::int64_t> offsets(const std::string& name, std::int64_t count, std::int64_t total) {
    return place<std::int64_t>(
        name, count + 1, [&](std::span<const std::int64_t> v) { set_.require_offsets(name, v, total, Rise::weak); });
  }
  /// Each in 0 .. below-1, with fits(values, row) for each row of each group that `groups` bounds.
  ///
  /// order  what fits() requires
  template <class T, class Fits>
  std::span<const T> ids(const std::string& name, std::int64_t count, std::int64_t below,
                         std::span<const std::int64_t> groups, const char* order, const Fits& fits) {
    return place<T>(name, count, [&](std::span<const T> v) {
      set_.require_ids(name, v, below, "id");
      for (std::int64_t group = 0; group + 1 < std::ssize(groups); ++group)
        for (std::int64_t row = groups[group]; row < groups[group + 1]; ++row)
          require_fit(fits(v, Row{row, group, row == groups[group]}), name, v[row], row, order);
    });
  }
  /// The triples of each entry of the pattern: offsets, and triples of the entry's pair.
  std::span<const std::int64_t> entry_triples(const std::string& name, const KgGraph& graph) {
    return place<std::int64_t>(name, graph.nnz() + 1, [&](std::span<const std::int64_t> v) {
      set_.require_offsets(name, v, graph.triples(), Rise::weak);
      const char* order = "the triples of an entry must be those of its node and column";
      for (std::int64_t node = 0; node < graph.nodes; ++node) {
        const std::int64_t first = graph.adj_indptr[node], last = graph.adj_indptr[node + 1];
        require_fit(v[first] == graph.indptr[node], name, v[first], first, order);
        for (std::int64_t entry = first; entry < last; ++entry)
          for (std::int64_t triple = v[entry]; triple < v[entry + 1]; ++triple)
            require_fit(graph.tail[triple] == graph.col[entry], name, v[entry], entry, order);
      }
    });
  }
  UserItems interactions(const std::string& group, std::int64_t users, std::int64_t items, std::int64_t count) {
    UserItems part;
    part.indptr = offsets(group + "/indptr", users, count);
    part.item = ids<std::int32_t>(group + "/item", count, items, part.indptr,
                                  "the items of a user must be ascending and distinct",
                                  [](const auto& item, const Row& row) { return ascends(item, row); });
    return part;
  }
  std::uint64_t hash() const { return hash_; }

 private:
  void require_fit(bool fits, const std::string& name, std::int64_t value, std::int64_t row, const char* order) const {
    if (!fits)
      throw Error(Fault::data, join(set_.reading(name), ": ", value, " in row ", row, " does not fit: ", order,
                                    "; rebuild it with lockstep-prep"));
  }
  template <class T, class Check>
  std::span<const T> place(const std::string& name, std::int64_t count, const Check& check) {
    const Tensor array = place_dataset<T>(data_memory_, set_, name, {count}, check);
    const std::uint64_t sum = data_memory_.hash([&] { return hash64(array.raw(), array.size_bytes()); });
    hash_ = hash64(&sum, sizeof sum, hash_);
    return array.span<const T>();
  }

  const DatasetFile& set_;
  DataMemory& data_memory_;
  std::uint64_t hash_ = 0;
};

}  // namespace

bool UserItems::has(std::int64_t user, std::int64_t wanted) const {
  const auto mine = of(user);
  return std::binary_search(mine.begin(), mine.end(), static_cast<std::int32_t>(wanted));
}

KgData KgData::read(const std::filesystem::path& path, DataMemory& data_memory) {
  const H5File file = data_memory.open(path);
  const DatasetFile set(file, kKgatFormat);
  const auto size = [&](const char* attribute) { return set.size(attribute); };
  KgData data;
  data.path = path;
  data.users = size("n_users");
  data.items = size("n_items");
  data.entities = size("n_entities");
  KgGraph& graph = data.graph;
  graph.nodes = size("n_nodes");
  graph.relations = size("n_relations");
  const std::int64_t triples = size("n_ckg_triples"), nnz = size("nnz");
  require_data(data.items <= data.entities && graph.nodes == data.entities + data.users &&
                   graph.nodes <= std::numeric_limits<std::int32_t>::max() && graph.relations >= 2 && nnz <= triples,
               set.opening(), ": ", data.users, " users, ", data.items, " items, ", data.entities, " entities, ",
               graph.nodes, " nodes, ", graph.relations, " relations, ", triples, " triples and ", nnz,
               " pattern entries do not fit together");

  Arrays arrays(set, data_memory);
  data.train = arrays.interactions("/cf/train", data.users, data.items, size("n_cf_train"));
  data.test = arrays.interactions("/cf/test", data.users, data.items, size("n_cf_test"));
  if (file.is_group("/cf/valid"))
    data.valid = arrays.interactions("/cf/valid", data.users, data.items, size("n_cf_valid"));
  graph.indptr = arrays.offsets("/ckg/indptr", graph.nodes, triples);
  graph.tail = arrays.ids<std::int32_t>(
      "/ckg/tail", triples, graph.nodes, graph.indptr, "the tails of a head must be ascending",
      [](const auto& tail, const Row& row) { return row.first || tail[row.i - 1] <= tail[row.i]; });
  graph.rel = arrays.ids<std::int32_t>(
      "/ckg/rel", triples, graph.relations, graph.indptr, "the relations of a head and a tail must be ascending",
      [&](const auto& rel, const Row& row) { return ascends(graph.tail, row) || rel[row.i - 1] <= rel[row.i]; });
  graph.rel_indptr = arrays.offsets("/ckg/rel_indptr", graph.relations, triples);
  graph.rel_perm = arrays.ids<std::int64_t>("/ckg/rel_perm", triples, triples, graph.rel_indptr,
                                            "the triples of a relation must be its own, ascending",
                                            [&](const auto& triple, const Row& row) {
                                              return graph.rel[triple[row.i]] == row.group && ascends(triple, row);
                                            });
  graph.adj_indptr = arrays.offsets("/adj/indptr", graph.nodes, nnz);
  graph.col = arrays.ids<std::int32_t>("/adj/col", nnz, graph.nodes, graph.adj_indptr,
                                       "the columns of a node must be ascending and distinct",
                                       [](const auto& col, const Row& row) { return ascends(col, row); });
  graph.edge_ptr = arrays.entry_triples("/adj/edge_ptr", graph);
  graph.transpose = arrays.ids<std::int64_t>(
      "/adj/transpose", nnz, nnz, graph.adj_indptr, "it must be the entry of the reversed pair",
      [&](const auto& transpose, const Row& row) {
        const std::int64_t entry = transpose[row.i], other = graph.col[row.i];
        return graph.adj_indptr[other] <= entry && entry < graph.adj_indptr[other + 1] && graph.col[entry] == row.group;
      });
  data.hash = arrays.hash();
  return data;
}

void KgData::own_graph(TripleGraph arrays, std::int64_t relations) {
  const auto shared = std::make_shared<const TripleGraph>(std::move(arrays));
  graph = {.nodes = nodes(),
           .relations = relations,
           .indptr = shared->indptr,
           .tail = shared->tail,
           .rel = shared->rel,
           .rel_indptr = shared->rel_indptr,
           .rel_perm = shared->rel_perm,
           .adj_indptr = shared->adj_indptr,
           .col = shared->col,
           .edge_ptr = shared->edge_ptr,
           .transpose = shared->transpose};
  owned = shared;
}

KgData KgData::with(GraphControl control, std::uint64_t seed) const {
  if (control == GraphControl::whole) return *this;
  require_usage(graph.rel_indptr[2] < graph.triples(), "graph ", name(control), ": ", path,
                " has no triples besides its interactions; use data.graph = whole");
  const auto half = static_cast<std::int32_t>(graph.relations / 2 - 1);  // relations without inverses
  std::vector<Triple> triples;
  std::vector<std::int32_t> heads, tails;
  for (std::int32_t r = 0; r < 2 + (control == GraphControl::removed ? 0 : half); ++r) {
    if (r == 1) continue;
    heads.clear();
    tails.clear();
    const auto relation = static_cast<std::size_t>(r);
    auto head = graph.indptr.begin();
    for (std::int64_t i = graph.rel_indptr[relation]; i < graph.rel_indptr[relation + 1]; ++i) {
      const std::int64_t triple = graph.rel_perm[i];
      head = std::upper_bound(head, graph.indptr.end(), triple) - 1;
      heads.push_back(static_cast<std::int32_t>(head - graph.indptr.begin()));
      tails.push_back(graph.tail[triple]);
    }
    const Philox draws(seed, 0, "kgat.shuffled_graph", relation);
    for (std::size_t i = tails.size(); r >= 2 && i > 1; --i) std::swap(tails[i - 1], tails[draws.below(i, i)]);
    const std::int32_t inverse = r == 0 ? 1 : r + half;
    for (std::size_t i = 0; i < heads.size(); ++i)
      triples.insert(triples.end(), {{heads[i], r, tails[i]}, {tails[i], inverse, heads[i]}});
  }
  KgData other = *this;
  other.own_graph(index_triples(graph.nodes, graph.relations, triples), graph.relations);
  return other;
}

}  // namespace lockstep
