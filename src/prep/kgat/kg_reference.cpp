/// The graph part of a KGAT reference file.
#include <algorithm>
#include <array>

#include "lockstep/base/error.hpp"
#include "lockstep/prep/kgat/kg_raw.hpp"
#include "lockstep/prep/reference.hpp"

namespace lockstep::prep {

namespace {

constexpr double kExact = 0, kInitialValues = 1e-6;

/// Compares the entries that are not zero; the reference leaves zeros out.
void compare_matrix(const H5File& golden, const std::string& group, const Ckg& graph, const std::vector<float>& values,
                    ReferenceReport& report) {
  std::vector<std::int64_t> rows, columns;
  std::vector<float> entries;
  for (std::size_t row = 0; row + 1 < graph.adj_indptr.size(); ++row)
    for (std::int64_t p = graph.adj_indptr[row]; p < graph.adj_indptr[row + 1]; ++p) {
      if (values[at(p)] == 0) continue;
      rows.push_back(static_cast<std::int64_t>(row));
      columns.push_back(graph.col[at(p)]);
      entries.push_back(values[at(p)]);
    }
  report.compare(golden, group + "/row", rows, kExact);
  report.compare(golden, group + "/col", columns, kExact);
  report.compare(golden, group + "/val", entries, kInitialValues);
}

KgText text_of(const H5File& golden, const std::string& name) {
  const auto bytes = golden.read<std::uint8_t>("/raw/" + name);
  return {golden.path().string() + ":/raw/" + name, std::string(bytes.begin(), bytes.end())};
}

}  // namespace

void verify_kg_graph(const H5File& golden, ReferenceReport& report) {
  std::vector<KgFinding> findings;
  const KgSet set = read_kg_text(text_of(golden, "train.txt"), text_of(golden, "test.txt"),
                                 text_of(golden, "kg_final.txt"), {}, findings);
  const KgSizes& sizes = set.sizes;
  const auto count = [&](const char* attribute, std::int64_t ours) {
    report.compare(attribute, std::vector{ours}, std::vector{golden.int_attribute("/", attribute)}, kExact);
  };
  count("n_users", sizes.users);
  count("n_items", sizes.items);
  count("n_entities", sizes.entities);
  count("n_nodes", sizes.nodes());
  count("n_kg_relations", sizes.kg_relations);
  count("n_relations", sizes.relations());
  count("n_cf_train", sizes.train);
  count("n_cf_test", sizes.test);
  count("n_triples_ckg", sizes.ckg_triples());
  count("user_offset", sizes.entities);

  const Ckg graph = build_ckg(sizes, set.train, set.triples, SymmetricForm::sound);
  using Edge = std::array<std::int64_t, 3>;
  std::vector<Edge> ours, theirs;
  for (std::int64_t head = 0; head < sizes.nodes(); ++head)
    for (std::int64_t e = graph.indptr[at(head)]; e < graph.indptr[at(head + 1)]; ++e)
      ours.push_back({head, graph.rel[at(e)], graph.tail[at(e)]});
  const auto h = golden.read<std::int64_t>("/inputs/ckg_h"), r = golden.read<std::int64_t>("/inputs/ckg_r"),
             t = golden.read<std::int64_t>("/inputs/ckg_t");
  require_data(h.size() == r.size() && h.size() == t.size(), "reading '", golden.path().string(),
               "': /inputs/ckg_h, ckg_r and ckg_t have different lengths");
  for (std::size_t i = 0; i < h.size(); ++i) theirs.push_back({h[i], r[i], t[i]});
  std::sort(ours.begin(), ours.end());
  std::sort(theirs.begin(), theirs.end());
  const auto flat = [](const std::vector<Edge>& edges) {
    std::vector<std::int64_t> out;
    for (const Edge& edge : edges) out.insert(out.end(), edge.begin(), edge.end());
    return out;
  };
  report.compare("ckg triples", flat(ours), flat(theirs), kExact);

  const Ckg upstream = build_ckg(sizes, set.train, set.triples, SymmetricForm::upstream);
  compare_matrix(golden, "/laplacian/random_walk", graph, graph.random_walk, report);
  compare_matrix(golden, "/laplacian/symmetric", graph, graph.symmetric, report);
  compare_matrix(golden, "/laplacian/symmetric_upstream", upstream, upstream.symmetric, report);
}

}  // namespace lockstep::prep
