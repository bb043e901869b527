/// Writes and reads prepared graphs.
#include "prep/kgat/kg_file.hpp"

#include <limits>

#include "prep/set_file.hpp"

namespace lockstep::prep {

H5Type kg_index_type(std::int64_t entries) {
  return entries <= std::numeric_limits<std::int32_t>::max() ? H5Type::i32 : H5Type::i64;
}

namespace {
void fields(SetFile& io, KgSet& set) {
  KgSizes& sizes = set.sizes;
  std::int64_t nnz = set.ckg.nnz(), valid = std::ssize(set.valid.item);
  const bool validated = io.part("/cf/valid", !set.valid.indptr.empty());
  io.attribute("name", set.name);
  io.size("n_users", sizes.users);
  io.size("n_items", sizes.items);
  io.size("n_entities", sizes.entities);
  io.derived("n_nodes", sizes.nodes());
  io.size("n_kg_relations", sizes.kg_relations);
  io.derived("n_relations", sizes.relations());
  io.size("n_cf_train", sizes.train);
  io.size("n_cf_test", sizes.test);
  if (validated) io.size("n_cf_valid", valid);
  io.size("n_kg_triples", sizes.kg_triples);
  io.derived("n_ckg_triples", sizes.ckg_triples());
  io.size("nnz", nnz, 0, sizes.ckg_triples());
  io.choice("symmetric", set.symmetric, {"sound", "upstream"});
  io.attribute("sources", set.sources);
  io.attribute("source_sha256", set.sha256);
  if (io.reads()) sizes.require_indexable();

  io.storage({.elements = std::int64_t{1} << 20, .deflate = io.deflate()});
  const auto interactions = [&](const std::string& group, UserItems& part, std::int64_t n) {
    io.offsets(group + "/indptr", part.indptr, sizes.users + 1, n, Rise::weak);
    io.array(group + "/item", part.item, {n}, {{0, sizes.items - 1}});
  };
  interactions("/cf/train", set.train, sizes.train);
  interactions("/cf/test", set.test, sizes.test);
  if (validated) interactions("/cf/valid", set.valid, valid);

  std::vector<std::int32_t> flat;
  for (const auto& t : set.triples) flat.insert(flat.end(), {t.head, t.relation, t.tail});
  io.array("/kg/triple", flat, {sizes.kg_triples, 3},
           {{0, sizes.entities - 1, "head"}, {0, sizes.kg_relations - 1, "relation"}, {0, sizes.entities - 1, "tail"}});
  if (io.reads())
    for (std::size_t i = 0; i < flat.size(); i += 3) set.triples.push_back({flat[i], flat[i + 1], flat[i + 2]});

  each_array(sizes, nnz, [&](const char* name, auto array, std::int64_t n) {
    io.array(name, set.ckg.*array, {io.reads() ? n : -1});
  });
  if (kg_index_type(sizes.ckg_triples()) == H5Type::i64) {
    io.array("/ckg/rel_perm", set.ckg.rel_perm, {sizes.ckg_triples()});
  } else {
    std::vector<std::int32_t> narrow(set.ckg.rel_perm.begin(), set.ckg.rel_perm.end());
    io.array("/ckg/rel_perm", narrow, {sizes.ckg_triples()});
    if (io.reads()) set.ckg.rel_perm.assign(narrow.begin(), narrow.end());
  }
}
}  // namespace

void write_kg_set(const std::filesystem::path& path, const KgSet& set, int deflate) {
  write_set(path, kKgatFormat, set, fields, deflate);
}
KgSet read_kg_set(const H5File& file, Problems* problems) { return read_set(file, kKgatFormat, problems, fields); }

}  // namespace lockstep::prep
