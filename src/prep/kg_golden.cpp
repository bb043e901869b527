/// The graph part of a KGAT reference file.
#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/prep/golden_checks.hpp"
#include "lockstep/prep/kg_raw.hpp"

namespace lockstep::prep {

namespace {

constexpr double kExact = 0, kInitialValues = 1e-6;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

/// Entries of a sparse matrix, sorted by (row, column).
struct Entries {
  std::vector<std::pair<std::int64_t, std::int64_t>> place;
  std::vector<double> value;
};

/// Entries that are not zero; the reference leaves zeros out.
Entries entries_of(const Ckg& graph, const std::vector<float>& values) {
  Entries out;
  for (std::size_t row = 0; row + 1 < graph.adj_indptr.size(); ++row) {
    for (std::int64_t p = graph.adj_indptr[row]; p < graph.adj_indptr[row + 1]; ++p) {
      if (values[at(p)] == 0) continue;
      out.place.emplace_back(static_cast<std::int64_t>(row), graph.col[at(p)]);
      out.value.push_back(static_cast<double>(values[at(p)]));
    }
  }
  return out;
}

Entries entries_of(const H5File& golden, const std::string& group) {
  const auto row = golden.read<std::int64_t>(group + "/row"), col = golden.read<std::int64_t>(group + "/col");
  const auto value = golden.read<float>(group + "/val");
  require_data(row.size() == col.size() && row.size() == value.size(), "reading '", group, "' of '",
               golden.path().string(), "': row, col and val have different lengths");
  Entries out;
  for (std::size_t i = 0; i < row.size(); ++i) {
    out.place.emplace_back(row[i], col[i]);
    out.value.push_back(static_cast<double>(value[i]));
  }
  return out;
}

GoldenRow compare(const std::string& tensor, const Entries& ours, const Entries& theirs) {
  GoldenRow row{tensor, 0, kInitialValues, ""};
  const auto [a, b] = std::mismatch(ours.place.begin(), ours.place.end(), theirs.place.begin(), theirs.place.end());
  if (a != ours.place.end() || b != theirs.place.end()) {
    row.note = join(ours.place.size(), " entries, the reference has ", theirs.place.size(), "; they part at entry ",
                    a - ours.place.begin());
    return row;
  }
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < ours.value.size(); ++i) {
    if (!std::isfinite(ours.value[i])) row.note = join("value ", i, " is not finite");
    worst = std::max(worst, std::abs(ours.value[i] - theirs.value[i]));
    largest = std::max(largest, std::abs(theirs.value[i]));
  }
  row.error = largest > 0 ? worst / largest : worst;
  return row;
}

KgText text_of(const H5File& golden, const std::string& name) {
  const auto bytes = golden.read<std::uint8_t>("/raw/" + name);
  return {golden.path().string() + ":/raw/" + name, std::string(bytes.begin(), bytes.end())};
}

}  // namespace

std::vector<GoldenRow> check_golden_kg(const std::filesystem::path& path) {
  const H5File golden = H5File::open(path);
  std::vector<KgFinding> findings;
  const KgSet set = read_kg_text(text_of(golden, "train.txt"), text_of(golden, "test.txt"),
                                 text_of(golden, "kg_final.txt"), {}, findings);
  const KgSizes& sizes = set.sizes;
  std::vector<GoldenRow> rows;
  const auto count = [&](const char* attribute, std::int64_t ours) {
    const std::int64_t theirs = golden.int_attribute("/", attribute);
    rows.push_back({attribute, std::abs(static_cast<double>(ours - theirs)), kExact, ""});
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
  require_data(h.size() == r.size() && h.size() == t.size(), "reading '", path.string(),
               "': /inputs/ckg_h, ckg_r and ckg_t have different lengths");
  for (std::size_t i = 0; i < h.size(); ++i) theirs.push_back({h[i], r[i], t[i]});
  std::sort(ours.begin(), ours.end());
  std::sort(theirs.begin(), theirs.end());
  std::vector<Edge> different;
  std::set_symmetric_difference(ours.begin(), ours.end(), theirs.begin(), theirs.end(), std::back_inserter(different));
  rows.push_back({"ckg triples", static_cast<double>(different.size()), kExact, ""});

  const Ckg upstream = build_ckg(sizes, set.train, set.triples, SymmetricForm::upstream);
  rows.push_back(compare("laplacian/random_walk", entries_of(graph, graph.random_walk),
                         entries_of(golden, "/laplacian/random_walk")));
  rows.push_back(
      compare("laplacian/symmetric", entries_of(graph, graph.symmetric), entries_of(golden, "/laplacian/symmetric")));
  rows.push_back(compare("laplacian/symmetric_upstream", entries_of(upstream, upstream.symmetric),
                         entries_of(golden, "/laplacian/symmetric_upstream")));
  return rows;
}

}  // namespace lockstep::prep
