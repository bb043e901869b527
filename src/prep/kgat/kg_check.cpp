/// Checks and describes prepared graphs.
#include <algorithm>
#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/io/dataset_file.hpp"
#include "prep/kgat/kg_file.hpp"
#include "prep/page.hpp"
#include "prep/problems.hpp"

namespace lockstep::prep {

namespace {

/// Reports the first user whose items are not ascending and different.
void check_order(const UserItems& part, const std::string& group, Problems& problems) {
  for (std::int64_t user = 0; user < part.users(); ++user) {
    const auto own = part.of(user);
    if (std::adjacent_find(own.begin(), own.end(), std::greater_equal<>()) == own.end()) continue;
    return problems.push_back(join(group, "/item: the items of user ", user, " are not ascending and different"));
  }
}

/// The number of items of `a` that the same user has in `b`.
std::int64_t common(const UserItems& a, const UserItems& b) {
  std::int64_t count = 0;
  for (std::int64_t user = 0; user < a.users(); ++user) {
    const auto other = b.of(user);
    for (const std::int32_t item : a.of(user)) count += std::binary_search(other.begin(), other.end(), item);
  }
  return count;
}

template <class T>
void compare(const std::vector<T>& stored, const std::vector<T>& built, const std::string& dataset,
             Problems& problems) {
  std::int64_t bad = 0, first = 0;
  for (std::size_t i = 0; i < built.size(); ++i) {
    bool same = stored[i] == built[i];
    if constexpr (std::is_floating_point_v<T>) same = std::abs(stored[i] - built[i]) <= 1e-6f * std::abs(built[i]);
    if (!same && bad++ == 0) first = static_cast<std::int64_t>(i);
  }
  if (bad > 0)
    problems.push_back(join(dataset, ": ", bad, " of ", built.size(), " entries are not those of the interactions and ",
                            "triples; entry ", first, " is ", stored[at(first)], ", expected ", built[at(first)]));
}

std::int64_t users_without(const UserItems& part) {
  std::int64_t count = 0;
  for (std::int64_t user = 0; user < part.users(); ++user) count += part.of(user).empty();
  return count;
}

}  // namespace

std::vector<std::string> check_kg_set(const H5File& file, std::vector<std::string>& remarks) {
  Problems problems;
  const KgSet set = read_kg_set(file, &problems);
  const KgSizes& sizes = set.sizes;
  if (!problems.empty()) return problems;
  check_order(set.train, "/cf/train", problems);
  check_order(set.test, "/cf/test", problems);
  check_order(set.valid, "/cf/valid", problems);
  if (!problems.empty()) return problems;

  check_sums(set.sources, set.sha256, problems);
  std::vector<Triple> sorted = set.triples;
  std::sort(sorted.begin(), sorted.end(), [](const Triple& a, const Triple& b) {
    return std::tie(a.head, a.relation, a.tail) < std::tie(b.head, b.relation, b.tail);
  });
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
    problems.push_back(
        join("/kg/triple: ", twice->head, " ", twice->relation, " ", twice->tail, " occurs more than once"));
  if (common(set.valid, set.train) > 0) problems.push_back("/cf/valid: an item is also a train item of its user");
  if (sizes.train == 0) problems.push_back("/cf/train: there are no interactions");

  const Ckg built = build_ckg(sizes, set.train, set.triples, set.symmetric);
  if (built.nnz() != set.ckg.nnz()) {
    problems.push_back(join("attribute 'nnz' is ", set.ckg.nnz(), ", the graph has ", built.nnz(), " pairs"));
    return problems;
  }
  each_array(sizes, built.nnz(), [&](const char* name, auto array, std::int64_t) {
    compare(set.ckg.*array, built.*array, name, problems);
  });
  compare(set.ckg.rel_perm, built.rel_perm, "/ckg/rel_perm", problems);

  const auto remark = [&](std::int64_t count, const char* what) {
    if (count > 0) remarks.push_back(join(count, what));
  };
  remark(users_without(set.train), " users have no train items");
  remark(common(set.test, set.train), " test items are train items of the same user: they cannot be hit");
  remark(std::count(built.degree.begin(), built.degree.end(), 0), " nodes have no edges");
  if (sizes.test == 0) remarks.push_back("there are no test items");
  if (sizes.kg_triples == 0) remarks.push_back("there is no knowledge graph: interactions alone");
  if (set.symmetric == SymmetricForm::upstream)
    remarks.push_back("/adj/symmetric is the upstream form, which gives interactions no weight");
  return problems;
}

void describe_kg_set(const H5File& file, std::ostream& out) {
  Problems problems;
  const KgSet set = read_kg_set(file, &problems);
  const std::int64_t triples = set.sizes.ckg_triples();
  for (const auto* offsets : {&set.ckg.indptr, &set.ckg.rel_indptr})
    if (const std::string defect = offsets_defect(*offsets, triples, Rise::weak); !defect.empty())
      problems.push_back("an index array of /ckg " + defect);
  check_ranges("/ckg/rel_perm", set.ckg.rel_perm, {{0, triples - 1}}, problems);
  require_sound(problems, file.path());
  const KgSizes& sizes = set.sizes;
  Page page(out, file, "collaborative knowledge graph '" + set.name + "'");
  const auto part = [&](const char* name, const UserItems& interactions) {
    page.line(name, interactions.item.size(), " interactions; ", users_without(interactions), " users without");
  };
  page.line("nodes", sizes.nodes(), " = ", sizes.entities, " entities (", sizes.items, " of them items) + ",
            sizes.users, " users");
  part("train", set.train);
  part("test", set.test);
  if (!set.valid.indptr.empty()) part("validation", set.valid);
  page.line("knowledge graph", sizes.kg_triples, " triples, ", sizes.kg_relations, " relations");
  page.line("graph", sizes.ckg_triples(), " triples, ", sizes.relations(), " relations, ", set.ckg.nnz(), " pairs (",
            sizes.ckg_triples() - set.ckg.nnz(), " triples are parallel to another)");
  const auto& degree = set.ckg.degree;
  const auto largest = std::max_element(degree.begin(), degree.end());
  if (largest != degree.end())
    page.line("degree", "mean ", static_cast<double>(set.ckg.nnz()) / static_cast<double>(sizes.nodes()), ", largest ",
              *largest, " (node ", largest - degree.begin(), "), 0 at ", std::count(degree.begin(), degree.end(), 0),
              " nodes");
  page.line("symmetric", set.symmetric == SymmetricForm::sound ? "sound form" : "upstream form");
  page.sources(set.sources, set.sha256);
  page.attributes("/", set.notes);
  page.print("\n  %8s  %12s  %12s  %s\n", "relation", "triples", "heads", "meaning");
  std::vector<std::int32_t> head_of(at(sizes.ckg_triples()));
  for (std::int64_t node = 0; node < sizes.nodes(); ++node)
    std::fill(head_of.begin() + set.ckg.indptr[at(node)], head_of.begin() + set.ckg.indptr[at(node + 1)],
              static_cast<std::int32_t>(node));
  for (std::int64_t r = 0; r < sizes.relations(); ++r) {
    // Positions ascend within a relation, and so do their heads.
    std::int64_t distinct = 0;
    std::int32_t last = -1;
    for (std::int64_t k = set.ckg.rel_indptr[at(r)]; k < set.ckg.rel_indptr[at(r + 1)]; ++k) {
      const std::int32_t head = head_of[at(set.ckg.rel_perm[at(k)])];
      distinct += head != last;
      last = head;
    }
    const std::string meaning = r == 0                       ? "user -> item"
                                : r == 1                     ? "item -> user"
                                : r < 2 + sizes.kg_relations ? join("relation ", r - 2, " of the knowledge graph")
                                                             : join("inverse of relation ", r - 2 - sizes.kg_relations);
    page.print("  %8lld  %12lld  %12lld  %s\n", static_cast<long long>(r),
               static_cast<long long>(set.ckg.rel_indptr[at(r + 1)] - set.ckg.rel_indptr[at(r)]),
               static_cast<long long>(distinct), meaning.c_str());
  }
}

}  // namespace lockstep::prep
