#include "lockstep/data/kg_data.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/io/h5.hpp"

namespace lockstep {

namespace {

constexpr const char* kFormat = "lockstep-kgat";
constexpr std::int64_t kVersion = 1;

/// Reads arrays of one file into the placement, with the checks that later indexing relies on.
class Arrays {
 public:
  Arrays(const H5File& file, Placement& placement) : file_(file), placement_(placement) {}

  /// 0 = first <= ... <= last = total.
  std::span<const std::int64_t> offsets(const std::string& name, std::int64_t count, std::int64_t total) {
    return place<std::int64_t>(name, count + 1, [&](std::span<const std::int64_t> v) {
      require_data(v.front() == 0 && v.back() == total, where(name), ": runs from ", v.front(), " to ", v.back(),
                   ", expected 0 to ", total);
      const auto fall = std::adjacent_find(v.begin(), v.end(), std::greater<>());
      require_data(fall == v.end(), where(name), ": falls at index ", fall - v.begin());
    });
  }
  /// Each in 0 .. below-1.
  template <class T>
  std::span<const T> ids(const std::string& name, std::int64_t count, std::int64_t below) {
    return place<T>(name, count, [&](std::span<const T> v) {
      const auto bad = std::find_if(v.begin(), v.end(), [&](T id) { return id < 0 || id >= below; });
      require_data(bad == v.end(), where(name), "[", bad - v.begin(), "] = ", bad == v.end() ? T{} : *bad,
                   ": must be 0 .. ", below - 1);
    });
  }
  UserItems interactions(const std::string& group, std::int64_t users, std::int64_t items, std::int64_t count) {
    UserItems part;
    part.indptr = offsets(group + "/indptr", users, count);
    part.item = ids<std::int32_t>(group + "/item", count, items);
    return part;
  }
  std::uint64_t hash() const { return hash_; }

 private:
  std::string where(const std::string& name) const { return join("dataset '", name, "' of ", file_.path()); }

  template <class T, class Check>
  std::span<const T> place(const std::string& name, std::int64_t count, const Check& check) {
    const Tensor array = placement_.place(dtype_of<T>::value, {count}, [&](const Tensor& to) {
      file_.read_into<T>(name, to.span<T>(), {count});
      check(std::span<const T>(to.span<T>()));
    });
    const Tensor sum = placement_.place(DType::i64, {1}, [&](const Tensor& to) {
      *to.data<std::int64_t>() = static_cast<std::int64_t>(hash64(array.raw(), array.size_bytes()));
    });
    hash_ = hash64(sum.raw(), sum.size_bytes(), hash_);
    return array.span<const T>();
  }

  const H5File& file_;
  Placement& placement_;
  std::uint64_t hash_ = 0;
};

}  // namespace

bool UserItems::has(std::int64_t user, std::int64_t wanted) const {
  const auto mine = of(user);
  return std::binary_search(mine.begin(), mine.end(), static_cast<std::int32_t>(wanted));
}

bool KgGraph::has(std::int64_t head, std::int64_t relation, std::int64_t wanted) const {
  const auto h = static_cast<std::size_t>(head);
  const auto first = tail.begin() + indptr[h], last = tail.begin() + indptr[h + 1];
  const auto [low, high] = std::equal_range(first, last, static_cast<std::int32_t>(wanted));
  return std::binary_search(rel.begin() + (low - tail.begin()), rel.begin() + (high - tail.begin()),
                            static_cast<std::int32_t>(relation));
}

KgData KgData::read(const std::filesystem::path& path, Placement& placement) {
  const H5File file = H5File::open(path);
  require_data(file.has_attribute("/", "format") && file.text_attribute("/", "format") == kFormat, "opening data set ",
               path, ": not a prepared knowledge graph; make one with lockstep-prep kg");
  const std::int64_t version = file.int_attribute("/", "version");
  require_data(version == kVersion, "opening data set ", path, ": version ", version, ", this program reads version ",
               kVersion, "; rebuild it with lockstep-prep");
  const auto size = [&](const char* attribute) {
    const std::int64_t value = file.int_attribute("/", attribute);
    require_data(value >= 0, "opening data set ", path, ": attribute '", attribute, "' is ", value);
    return value;
  };
  KgData data;
  data.path = path;
  data.users = size("n_users"), data.items = size("n_items"), data.entities = size("n_entities");
  KgGraph& graph = data.graph;
  graph.nodes = size("n_nodes"), graph.relations = size("n_relations");
  const std::int64_t triples = size("n_ckg_triples"), nnz = size("nnz");
  require_data(data.items <= data.entities && graph.nodes == data.entities + data.users &&
                   graph.nodes <= std::numeric_limits<std::int32_t>::max() && graph.relations >= 2 && nnz <= triples,
               "opening data set ", path, ": ", data.users, " users, ", data.items, " items, ", data.entities,
               " entities, ", graph.nodes, " nodes, ", graph.relations, " relations, ", triples, " triples and ", nnz,
               " pattern entries do not fit together");

  Arrays arrays(file, placement);
  data.train = arrays.interactions("/cf/train", data.users, data.items, size("n_cf_train"));
  data.test = arrays.interactions("/cf/test", data.users, data.items, size("n_cf_test"));
  if (file.is_group("/cf/valid"))
    data.valid = arrays.interactions("/cf/valid", data.users, data.items, size("n_cf_valid"));
  graph.indptr = arrays.offsets("/ckg/indptr", graph.nodes, triples);
  graph.tail = arrays.ids<std::int32_t>("/ckg/tail", triples, graph.nodes);
  graph.rel = arrays.ids<std::int32_t>("/ckg/rel", triples, graph.relations);
  graph.rel_indptr = arrays.offsets("/ckg/rel_indptr", graph.relations, triples);
  graph.rel_perm = arrays.ids<std::int64_t>("/ckg/rel_perm", triples, triples);
  graph.adj_indptr = arrays.offsets("/adj/indptr", graph.nodes, nnz);
  graph.col = arrays.ids<std::int32_t>("/adj/col", nnz, graph.nodes);
  graph.edge_ptr = arrays.offsets("/adj/edge_ptr", nnz, triples);
  graph.transpose = arrays.ids<std::int64_t>("/adj/transpose", nnz, nnz);
  data.hash = arrays.hash();
  return data;
}

void laplacian(const KgGraph& graph, Laplacian kind, const Tensor& values) {
  require(values.size() == graph.nnz(), "laplacian: ", values.size(), " values for ", graph.nnz(), " pattern entries");
  const std::int64_t half = graph.relations / 2 - 1;  // relations of the knowledge graph, without inverses
  const auto inverse = [&](std::int32_t r) { return r < 2 ? 1 - r : r < 2 + half ? r + half : r - half; };
  std::vector<std::int32_t> head(static_cast<std::size_t>(graph.triples()));
  for (std::int64_t h = 0; h < graph.nodes; ++h) {
    const auto n = static_cast<std::size_t>(h);
    std::fill(head.begin() + graph.indptr[n], head.begin() + graph.indptr[n + 1], static_cast<std::int32_t>(h));
  }
  // Relation by relation: its heads' degrees (and those on the other side), then its triples' shares.
  std::vector<double> share(static_cast<std::size_t>(graph.triples()));
  std::vector<std::int64_t> out(static_cast<std::size_t>(graph.nodes), 0), in(out);
  const auto count = [&](std::int64_t relation, std::vector<std::int64_t>& degrees, std::int64_t step) {
    const auto r = static_cast<std::size_t>(relation);
    for (std::int64_t i = graph.rel_indptr[r]; i < graph.rel_indptr[r + 1]; ++i)
      degrees[static_cast<std::size_t>(head[static_cast<std::size_t>(graph.rel_perm[static_cast<std::size_t>(i)])])] +=
          step;
  };
  for (std::int32_t r = 0; r < graph.relations; ++r) {
    const std::int32_t other = kind == Laplacian::symmetric ? inverse(r) : r;
    count(r, out, 1), count(other, in, 1);
    const auto n = static_cast<std::size_t>(r);
    for (std::int64_t i = graph.rel_indptr[n]; i < graph.rel_indptr[n + 1]; ++i) {
      const auto e = static_cast<std::size_t>(graph.rel_perm[static_cast<std::size_t>(i)]);
      const auto from = static_cast<double>(out[static_cast<std::size_t>(head[e])]);
      const auto to = static_cast<double>(in[static_cast<std::size_t>(graph.tail[e])]);
      share[e] = kind == Laplacian::random_walk ? 1 / from : to == 0 ? 0 : 1 / std::sqrt(from * to);
    }
    count(r, out, -1), count(other, in, -1);
  }
  visit_float(values.dtype(), [&]<class T>() {
    for (std::int64_t e = 0; e < graph.nnz(); ++e) {
      const auto n = static_cast<std::size_t>(e);
      double sum = 0;
      for (std::int64_t i = graph.edge_ptr[n]; i < graph.edge_ptr[n + 1]; ++i)
        sum += share[static_cast<std::size_t>(i)];
      values.data<T>()[e] = static_cast<T>(sum);
    }
  });
}

}  // namespace lockstep
